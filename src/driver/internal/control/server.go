package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/ledger"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/process"
)

// Pools is what an admin can ask about and change.
type Pools interface {
	Status() []nodeapi.PoolStatus
	Forget(ctx context.Context, name string) error
	Take(ctx context.Context, name, from string) error
	Find(id string) (pool string, v ledger.Volume, ok bool)
	Each(visit func(pool, id string, v ledger.Volume))
}

// Volumes is what an admin can do with single volumes, and all of them.
type Volumes interface {
	Each(ctx context.Context, visit func(nodeapi.VolumeStatus) error) error
	Enforce(ctx context.Context, id string, inodes *int64, progress func(files int64)) error
	Adopt(ctx context.Context, id string, bytes int64) (store.Record, error)
	Discard(ctx context.Context, id, node string) error
}

// Overview is what the controller knows of the nodes.
type Overview interface {
	Nodes() []nodeapi.NodeStatus
	Volumes(ctx context.Context) ([]nodeapi.VolumeStatus, error)
}

// Config is what a server is made of. Required are Overview in the controller, and Node, TopologyKey, Pools and Volumes
// on a node; of the others all but Owner.
type Config struct {
	// StateDir is where the socket is made; the driver has its lock.
	StateDir string
	// Owner is the user id that may connect, 0 for root.
	Owner                            uint32
	Driver, Node, TopologyKey, Build string
	Pools                            Pools
	Volumes                          Volumes
	Overview                         Overview
	Log                              *slog.Logger
}

// Server is the running driver's side.
type Server struct {
	Config
	http *http.Server
}

// peerKey is where a connection's peer is kept in the context of its requests.
type peerKey struct{}

// New returns a server that does not listen yet.
func New(c Config) (*Server, error) {
	onNode := c.Node != "" && c.TopologyKey != "" && c.Pools != nil && c.Volumes != nil
	if slices.Contains([]string{c.StateDir, c.Driver, c.Build}, "") || c.Log == nil || (c.Overview == nil && !onNode) {
		return nil, errors.New("control server: a field of its Config is missing")
	}
	s := &Server{Config: c}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+pathStatus, s.status)
	mux.HandleFunc("GET "+pathVolumes, s.refusing(s.volumes))
	for path, handle := range map[string]func(http.ResponseWriter, *http.Request) error{
		pathForget: s.forget, pathTake: s.take, pathEnforce: s.enforce, pathAdopt: s.adopt, pathDiscard: s.discard,
	} {
		if c.Overview != nil {
			handle = func(http.ResponseWriter, *http.Request) error { return errOfNode }
		}
		mux.HandleFunc("POST "+path, s.refusing(handle))
	}
	s.http = &http.Server{
		Handler: s.onlyOwner(mux), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second,
		IdleTimeout: time.Minute,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, peerKey{}, peer(c))
		},
		ErrorLog: slog.NewLogLogger(c.Log.Handler(), slog.LevelWarn),
	}
	return s, nil
}

// Listen makes the socket, mode 0600, over whatever an earlier driver left there.
func (s *Server) Listen(ctx context.Context) (net.Listener, error) {
	return process.ListenUnix(ctx, filepath.Join(s.StateDir, SocketName))
}

// Serve answers until ctx ends, and then removes the socket.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	return process.ServeHTTP(ctx, s.http, listener)
}

// peer is who connected, nil where the kernel does not say.
func peer(c net.Conn) (credentials *unix.Ucred) {
	if socket, ok := c.(*net.UnixConn); ok {
		if raw, err := socket.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) {
				if got, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
					credentials = got
				}
			})
		}
	}
	return credentials
}

func (s *Server) onlyOwner(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		credentials, ok := r.Context().Value(peerKey{}).(*unix.Ucred)
		if !ok || credentials == nil || credentials.Uid != s.Owner {
			s.reply(w, http.StatusForbidden, problem{fmt.Sprintf("only user id %d may use the control socket",
				s.Owner)})
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (s *Server) status(w http.ResponseWriter, _ *http.Request) {
	answer := Status{Driver: s.Driver, Version: s.Build, Pools: []nodeapi.PoolStatus{}}
	if s.Overview != nil {
		answer.Nodes = s.Overview.Nodes()
		s.reply(w, http.StatusOK, answer)
		return
	}
	answer.Node = s.Node
	answer.Pools = append(answer.Pools, s.Pools.Status()...)
	s.reply(w, http.StatusOK, answer)
}

func (s *Server) forget(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("name")
	known := slices.ContainsFunc(s.Pools.Status(), func(p nodeapi.PoolStatus) bool { return p.Name == name && p.Used })
	if err := s.Pools.Forget(r.Context(), name); err != nil {
		return err
	}
	s.reply(w, http.StatusOK, forgotten{known})
	return nil
}

func (s *Server) take(w http.ResponseWriter, r *http.Request) error {
	wanted, err := body[taking](w, r)
	if err == nil {
		err = s.Pools.Take(r.Context(), r.PathValue("name"), wanted.From)
	}
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

var (
	// errBadRequest refuses a request that this driver's own commands do not make.
	errBadRequest = errors.New("the request cannot be read; is the command of another version than the driver?")
	errOfNode     = errors.New("the controller has no pools; run the command in the driver's pod on the node")
)

// refusing makes a handler of work whose error is the answer.
func (s *Server) refusing(do func(w http.ResponseWriter, r *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := do(w, r); err != nil {
			s.reply(w, s.refusal(r, err), problem{err.Error()})
		}
	}
}

// refusal is the code of an error, which is logged where nothing that the admin asked for explains it.
func (s *Server) refusal(r *http.Request, err error) int {
	is := func(target error) bool { return errors.Is(err, target) }
	switch {
	case slices.ContainsFunc([]error{errBadRequest, nodeapi.ErrInvalidID, volume.ErrInvalid, volume.ErrOutOfRange}, is):
		return http.StatusBadRequest
	case slices.ContainsFunc([]error{store.ErrNotFound, pool.ErrUnknown, errOfNode}, is):
		return http.StatusNotFound
	case slices.ContainsFunc([]error{
		pool.ErrPresent, pool.ErrOtherCluster, pool.ErrAbsent, pool.ErrNotHere, store.ErrBroken, volume.ErrBusy,
		volume.ErrLost, nodeapi.ErrNamed, volume.ErrPublished, volume.ErrUnsupported,
	}, is):
		return http.StatusConflict
	case is(nodeapi.ErrClusterUnknown):
		return http.StatusServiceUnavailable
	}
	s.Log.ErrorContext(r.Context(), "cannot do what an admin asked for", logging.KeyRequest, r.URL.Path,
		logging.KeyError, err)
	return http.StatusInternalServerError
}

func (s *Server) reply(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		s.Log.Debug("a control client has gone", logging.KeyError, err)
	}
}
