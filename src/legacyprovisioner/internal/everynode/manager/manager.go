// Package manager keeps the directories of one node: it makes those of the volumes that are on every node, and removes
// those whose PersistentVolume asks for it. What there is to be is read from the API; nothing is remembered.
package manager

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/process"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/legacyprovisioner/internal/everynode/rounds"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/legacyprovisioner/internal/everynode/wire"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/legacyprovisioner/internal/hostpathpv"
)

const (
	// readTimeout bounds a request's way in, answerTimeout what is done about it: to remove a large directory takes
	// several requests, each of which goes on where the last one ended.
	readTimeout   = 10 * time.Second
	answerTimeout = 5 * time.Minute
	// maxHeader and maxBody bound a request, in bytes. A token has some 1,500, a path at most 4,096.
	maxHeader = 16 << 10
	maxBody   = 16 << 10
	// reviewsPerSecond bounds what strangers can make this node ask of the API.
	reviewsPerSecond = 5
)

// Config is what a Manager is made of; all fields are required but Guard.
type Config struct {
	Client kubernetes.Interface
	// Volumes are the PersistentVolumes of the cluster; the caller starts the informer.
	Volumes cache.SharedIndexInformer
	// Node is the name of this node.
	Node string
	// Base is where the volumes lie, the same path here and on the host: absolute and clean.
	Base string
	// Provisioner is the name of the provisioner, as classes have it.
	Provisioner string
	// Namespace is where provisioner and managers run.
	Namespace string
	// Account is the ServiceAccount of the provisioner. Nobody else is listened to.
	Account string
	// Guard looks at Base before anything is made or removed in it; nil takes any directory.
	Guard *hostpathpv.Guard
	// Registry is the ConfigMap in which managers say by which certificate they are to be known.
	Registry string
	Recorder record.EventRecorder
	Log      *slog.Logger
}

// Manager is the manager of one node.
type Manager struct {
	Config
	volumes corelisters.PersistentVolumeLister
	changes *rounds.Rounds
	locks   locks
	reviews *rate.Limiter

	certificate tls.Certificate
	public      []byte // of certificate, as PEM
	registered  atomic.Bool
	using       sync.Mutex
	used        atomic.Bool // this node has directories of volumes, as far as is known

	mu     sync.Mutex
	passed map[[32]byte]time.Time // hashes of tokens that were accepted, until when they need no other review
}

// New returns a manager with a certificate of its own, which nobody knows before it runs.
func New(c Config) (*Manager, error) {
	words := []string{c.Node, c.Provisioner, c.Namespace, c.Account, c.Registry}
	if c.Client == nil || c.Volumes == nil || slices.Contains(words, "") || c.Recorder == nil || c.Log == nil {
		return nil, errors.New("manager: a field of its Config is missing")
	}
	if !filepath.IsAbs(c.Base) || filepath.Clean(c.Base) != c.Base || c.Base == "/" {
		return nil, fmt.Errorf("directory of the volumes: %q: want a clean absolute path of its own", c.Base)
	}
	changes, err := rounds.On(c.Volumes)
	if err != nil {
		return nil, err
	}
	m := &Manager{
		Config: c, volumes: corelisters.NewPersistentVolumeLister(c.Volumes.GetIndexer()), changes: changes,
		reviews: rate.NewLimiter(reviewsPerSecond, 2*reviewsPerSecond), passed: map[[32]byte]time.Time{},
	}
	if m.certificate, m.public, err = wire.Issue(time.Now()); err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	return m, nil
}

// Run registers this node, serves the provisioner and keeps the directories, until ctx ends.
func (m *Manager) Run(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		Handler: m.handler(), ReadHeaderTimeout: readTimeout, ReadTimeout: readTimeout, WriteTimeout: answerTimeout,
		IdleTimeout: readTimeout, MaxHeaderBytes: maxHeader,
		// Strangers who try the port without TLS are no news.
		ErrorLog: slog.NewLogLogger(m.Log.Handler(), slog.LevelDebug),
	}
	var parts process.Group
	parts.Add("directories", func(ctx context.Context) error {
		if m.register(ctx) {
			m.changes.Run(ctx, m.makeMissing)
		}
		return nil
	})
	parts.Add("registration", func(ctx context.Context) error { m.registerAgain(ctx); return nil })
	parts.AddListener("provisioner", tls.NewListener(listener, wire.Serve(m.certificate)),
		func(ctx context.Context, l net.Listener) error { return process.ServeHTTP(ctx, server, l) })
	return parts.Run(ctx)
}

// Ready fails while this node cannot make or remove directories.
func (m *Manager) Ready(context.Context) error {
	if !m.Volumes.HasSynced() {
		return errors.New("the PersistentVolumes of the cluster are not read yet")
	}
	if !m.registered.Load() {
		return fmt.Errorf("this node is not in ConfigMap %s/%s yet, which the provisioner makes", m.Namespace,
			m.Registry)
	}
	if err := unix.Access(m.Base, unix.W_OK|unix.X_OK); err != nil {
		return fmt.Errorf("write in the directory of the volumes %s: %w", m.Base, err)
	}
	return nil
}

// openBase opens the directory of the volumes, if it is theirs: as mounted as is required, and with one of them where
// this node has had any.
func (m *Manager) openBase() (*hostpathpv.Directory, error) {
	all, err := m.volumes.List(labels.Everything())
	if err != nil {
		return nil, err
	}
	if err := hostpathpv.Apart(m.Base, all); err != nil {
		return nil, err
	}
	dir, err := hostpathpv.Open(m.Base)
	if err != nil {
		return nil, fmt.Errorf("open the directory of the volumes: %w", err)
	}
	if m.Guard != nil {
		err = m.Guard.Check(dir.File, m.Base)
	}
	if err == nil {
		err = m.recognize(dir, all)
	}
	if err != nil {
		dir.Close()
		return nil, err
	}
	return dir, nil
}

// recognize refuses a directory that lacks all volumes, on a node that has had some: the disk is not mounted.
func (m *Manager) recognize(dir *hostpathpv.Directory, all []*corev1.PersistentVolume) error {
	if !m.used.Load() {
		return nil
	}
	kept, going := m.directories(all)
	if err := hostpathpv.Recognize(dir, kept, going...); err != nil {
		return fmt.Errorf("%w; or, where its disk is new, make the directory of one by hand", err)
	}
	return nil
}

// keeps reports whether the directory of a volume stays on the nodes that have it, as that of a retained one does.
func (m *Manager) keeps(pv *corev1.PersistentVolume) bool {
	return pv.DeletionTimestamp == nil && hostpathpv.Kept(pv, m.Base)
}

// directories are the names of those that this node is to have, or keeps, and of those that it may have besides.
func (m *Manager) directories(all []*corev1.PersistentVolume) (kept, going []string) {
	for _, pv := range all {
		if !wire.Ours(pv, m.Provisioner) || filepath.Dir(pv.Spec.HostPath.Path) != m.Base {
			continue
		}
		if name := filepath.Base(pv.Spec.HostPath.Path); m.keeps(pv) {
			kept = append(kept, name)
		} else {
			going = append(going, name, hostpathpv.Condemned+pv.Name)
		}
	}
	return kept, going
}

// handler answers the provisioner, and nobody else.
func (m *Manager) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+wire.Directories, m.answer("a directory was made", m.makeAsked))
	mux.HandleFunc("DELETE "+wire.Directories, m.answer("a directory was removed", m.removeAsked))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := m.authenticate(r); err != nil {
			m.refuse(w, r, err)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		mux.ServeHTTP(w, r)
	})
}

// answer does what a request asks for and logs it.
func (m *Manager) answer(done string, do func(*http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := do(r); err != nil {
			m.refuse(w, r, err)
			return
		}
		m.Log.InfoContext(r.Context(), done, //nolint:sloglint // one of the two constants in handler
			logging.KeyPV, r.FormValue(wire.VolumeField), logging.KeyPath, r.FormValue(wire.PathField))
	}
}

// refusal is an error with the status of its answer; any other error is a 500.
type refusal struct {
	status int
	error
}

func (m *Manager) refuse(w http.ResponseWriter, r *http.Request, err error) {
	status := http.StatusInternalServerError
	if why := (refusal{}); errors.As(err, &why) {
		status = why.status
	}
	m.Log.WarnContext(r.Context(), "refused a request", logging.KeyMethod, r.Method, logging.KeyAddress, r.RemoteAddr,
		logging.KeyCode, status, logging.KeyError, err)
	http.Error(w, err.Error(), status)
}
