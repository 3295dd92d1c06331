// Package certificate keeps the certificate that the controller shows to the nodes, and publishes the authorities that
// they are to trust.
package certificate

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/certificates"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

const (
	// retryAfter is how soon a certificate is looked for again that could not be used.
	retryAfter = 5 * time.Second
	// attempts are for replicas that start together: one of them writes the Secret, the others read it.
	attempts = 5
)

// Store is the API. What is not there is nil, and a Secret's version then "". Writing makes nothing.
type Store interface {
	Secret(ctx context.Context, name string) (data map[string][]byte, version string, err error)
	WriteSecret(ctx context.Context, name, version string, data map[string][]byte) error
	ConfigMap(ctx context.Context, name string) (map[string]string, error)
	WriteConfigMap(ctx context.Context, name string, data map[string]string) error
}

// Config is what a Keeper is made of; every field is required.
type Config struct {
	// Mode is one of certificates.Modes.
	Mode string
	// DNSName is what the nodes expect in the certificate: <service>.<namespace>.svc.
	DNSName string
	// SecretName is filled here in certificates.SelfManaged, and only read in the other modes.
	SecretName string
	// ConfigMapName contains the authorities that the nodes trust.
	ConfigMapName string
	Store         Store
	Log           *slog.Logger
	Now           func() time.Time
	// Interval is the time from one look at the source to the next.
	Interval time.Duration
}

// Keeper keeps what the controller shows to the nodes: never one that the ConfigMap does not verify. All replicas run
// it at once, without a leader. It is safe for concurrent use.
type Keeper struct {
	Config

	mu   sync.RWMutex
	pair *tls.Certificate
	// fault is what the last look found wrong.
	fault error
}

// New returns a keeper that has not looked yet.
func New(c Config) *Keeper {
	k := &Keeper{Config: c}
	k.fault = k.explain(errors.New("it has not been read yet"))
	return k
}

// Run looks again and again until the context ends.
func (k *Keeper) Run(ctx context.Context) error {
	for {
		wait := k.Interval
		if !k.look(ctx) {
			wait = min(wait, retryAfter)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// TLS makes a configuration that shows the present certificate at each handshake.
func (k *Keeper) TLS() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: k.get}
}

func (k *Keeper) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if k.pair == nil {
		return nil, k.fault
	}
	return k.pair, nil
}

// Ready says why there is nothing to serve yet, and what to do.
func (k *Keeper) Ready() error {
	_, err := k.get(nil)
	return err
}

// look takes over what is in the source, and reports whether it can be used. If not, the pair from before stays.
func (k *Keeper) look(ctx context.Context) bool {
	pair, err := k.read(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		before := k.fault
		k.fault = k.explain(err)
		if before == nil || before.Error() != k.fault.Error() {
			k.Log.Warn("the certificate for the nodes cannot be used", logging.KeyError, k.fault)
		}
		return false
	}
	if k.pair == nil || !k.pair.Leaf.Equal(pair.Leaf) {
		k.Log.Info("a new certificate is served to the nodes")
	}
	k.pair, k.fault = pair, nil
	return true
}

func (k *Keeper) explain(fault error) error {
	return certificates.Source{
		Mode: k.Mode, Secret: k.SecretName, DNSName: k.DNSName,
		Maker: "the chart makes it for the controller to fill, which has to be allowed to get and patch it: upgrade " +
			"the release to get it and its rights back",
	}.Missing(fault)
}

// read gives the source's pair after the nodes can trust it.
func (k *Keeper) read(ctx context.Context) (*tls.Certificate, error) {
	data, err := k.source(ctx)
	if err != nil {
		return nil, err
	}
	pair, err := certificates.Pair(data)
	if err != nil {
		return nil, err
	}
	trusted, err := k.Store.ConfigMap(ctx, k.ConfigMapName)
	if err != nil {
		return nil, err
	}
	openshift, authorities, which := k.Mode == certificates.OpenShift, data[certificates.AuthoritiesKey], "its ca.crt"
	if openshift {
		authorities = []byte(trusted[certificates.InjectedKey])
		which = certificates.InjectedKey + " of the ConfigMap " + k.ConfigMapName
	}
	if err := certificates.Verify(pair, authorities, k.DNSName, k.Now()); err != nil {
		return nil, fmt.Errorf("%s does not verify its tls.crt: %w", which, err)
	}
	// No authority is taken away before it expires: another replica may serve the certificate from before, until it
	// looks.
	before := trusted[certificates.AuthoritiesKey]
	merged := string(certificates.Merge(k.Now(), []byte(before), authorities))
	if openshift {
		return pair, nil
	}
	k.tellOlderNodes(ctx, merged)
	if merged == before {
		return pair, nil
	}
	return pair, k.Store.WriteConfigMap(ctx, k.ConfigMapName, map[string]string{certificates.AuthoritiesKey: merged})
}

// tellOlderNodes writes the authorities where drivers that are older than 0.1.0 look for them, if there is such a
// ConfigMap. Where it cannot, these nodes are back once their driver is replaced.
func (k *Keeper) tellOlderNodes(ctx context.Context, authorities string) {
	older := strings.TrimSuffix(k.ConfigMapName, "authorities") + "ca"
	trusted, err := k.Store.ConfigMap(ctx, older)
	before := trusted[certificates.AuthoritiesKey]
	merged := string(certificates.Merge(k.Now(), []byte(before), []byte(authorities)))
	if err == nil && trusted != nil && merged != before {
		err = k.Store.WriteConfigMap(ctx, older, map[string]string{certificates.AuthoritiesKey: merged})
	}
	if err != nil {
		k.Log.DebugContext(ctx, "nodes with an older driver are not told the authorities", logging.KeyError, err)
	}
}

// source gives what the Secret contains: in certificates.SelfManaged after the next step that is due.
func (k *Keeper) source(ctx context.Context) (map[string][]byte, error) {
	var written error
	for range attempts {
		data, version, err := k.Store.Secret(ctx, k.SecretName)
		switch {
		case err != nil:
			return nil, err
		case version == "":
			return nil, errors.New("it is not there")
		case k.Mode != certificates.SelfManaged:
			return data, nil
		}
		next, stepped, err := certificates.Issue(data, k.DNSName, k.Now())
		if err != nil || !stepped {
			return next, err
		}
		// If this fails, another replica may have taken the step, so what it wrote is read.
		if written = k.Store.WriteSecret(ctx, k.SecretName, version, next); written == nil {
			return next, nil
		}
	}
	return nil, written
}
