package app

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
	// injectedKey is where OpenShift's service CA injects its authorities into a ConfigMap.
	injectedKey = "service-ca.crt"
	// certificateRetry is how soon a certificate is looked for again that could not be used.
	certificateRetry = 5 * time.Second
	// certificateAttempts are for replicas that start together: one of them writes the Secret, the others read it.
	certificateAttempts = 5
)

// certificateStore is the API. What is not there is nil, and a Secret's version then "". Writing makes nothing.
type certificateStore interface {
	Secret(ctx context.Context, name string) (data map[string][]byte, version string, err error)
	WriteSecret(ctx context.Context, name, version string, data map[string][]byte) error
	ConfigMap(ctx context.Context, name string) (map[string]string, error)
	WriteConfigMap(ctx context.Context, name string, data map[string]string) error
}

type certificateConfig struct {
	// Mode is one of certificates.Modes.
	Mode string
	// DNSName is what the nodes expect in the certificate: <service>.<namespace>.svc.
	DNSName string
	// SecretName is filled here in certificates.SelfManaged, and only read in the other modes.
	SecretName string
	// ConfigMapName contains the authorities that the nodes trust.
	ConfigMapName string
	Store         certificateStore
	Log           *slog.Logger
	Now           func() time.Time
	// Interval is the time from one look at the source to the next.
	Interval time.Duration
}

// certificate keeps what the controller shows to the nodes: never one that the ConfigMap does not verify. All replicas
// run it at once, without a leader. It is safe for concurrent use.
type certificate struct {
	certificateConfig

	mu   sync.RWMutex
	pair *tls.Certificate
	// fault is what the last look found wrong.
	fault error
}

func newCertificate(config certificateConfig) *certificate {
	c := &certificate{certificateConfig: config}
	c.fault = c.explain(errors.New("it has not been read yet"))
	return c
}

// run looks again and again until the context ends.
func (c *certificate) run(ctx context.Context) error {
	for {
		wait := c.Interval
		if !c.look(ctx) {
			wait = min(wait, certificateRetry)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// tls makes a configuration that shows the present certificate at each handshake.
func (c *certificate) tls() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: c.get}
}

func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.pair == nil {
		return nil, c.fault
	}
	return c.pair, nil
}

// ready says why there is nothing to serve yet, and what to do.
func (c *certificate) ready() error {
	_, err := c.get(nil)
	return err
}

// look takes over what is in the source, and reports whether it can be used. If not, the pair from before stays.
func (c *certificate) look(ctx context.Context) bool {
	pair, err := c.read(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		before := c.fault
		c.fault = c.explain(err)
		if before == nil || before.Error() != c.fault.Error() {
			c.Log.Warn("the certificate for the nodes cannot be used", logging.KeyError, c.fault)
		}
		return false
	}
	if c.pair == nil || !c.pair.Leaf.Equal(pair.Leaf) {
		c.Log.Info("a new certificate is served to the nodes")
	}
	c.pair, c.fault = pair, nil
	return true
}

func (c *certificate) explain(fault error) error {
	return certificates.Source{
		Mode: c.Mode, Secret: c.SecretName, DNSName: c.DNSName,
		Maker: "the chart makes it for the controller to fill, which has to be allowed to get and patch it: upgrade " +
			"the release to get it and its rights back",
	}.Missing(fault)
}

// read gives the source's pair after the nodes can trust it.
func (c *certificate) read(ctx context.Context) (*tls.Certificate, error) {
	data, err := c.source(ctx)
	if err != nil {
		return nil, err
	}
	pair, err := certificates.Pair(data)
	if err != nil {
		return nil, err
	}
	trusted, err := c.Store.ConfigMap(ctx, c.ConfigMapName)
	if err != nil {
		return nil, err
	}
	openshift, authorities, which := c.Mode == certificates.OpenShift, data[certificates.AuthoritiesKey], "its ca.crt"
	if openshift {
		authorities = []byte(trusted[injectedKey])
		which = injectedKey + " of the ConfigMap " + c.ConfigMapName
	}
	if err := certificates.Verify(pair, authorities, c.DNSName, c.Now()); err != nil {
		return nil, fmt.Errorf("%s does not verify its tls.crt: %w", which, err)
	}
	// No authority is taken away before it expires: another replica may serve the certificate from before, until it
	// looks.
	before := trusted[certificates.AuthoritiesKey]
	merged := string(certificates.Merge(c.Now(), []byte(before), authorities))
	if openshift {
		return pair, nil
	}
	c.tellOlderNodes(ctx, merged)
	if merged == before {
		return pair, nil
	}
	return pair, c.Store.WriteConfigMap(ctx, c.ConfigMapName, map[string]string{certificates.AuthoritiesKey: merged})
}

// tellOlderNodes writes the authorities where drivers that are older than 0.1.0 look for them, if there is such a
// ConfigMap. Where it cannot, these nodes are back once their driver is replaced.
func (c *certificate) tellOlderNodes(ctx context.Context, authorities string) {
	older := strings.TrimSuffix(c.ConfigMapName, "authorities") + "ca"
	trusted, err := c.Store.ConfigMap(ctx, older)
	before := trusted[certificates.AuthoritiesKey]
	merged := string(certificates.Merge(c.Now(), []byte(before), []byte(authorities)))
	if err == nil && trusted != nil && merged != before {
		err = c.Store.WriteConfigMap(ctx, older, map[string]string{certificates.AuthoritiesKey: merged})
	}
	if err != nil {
		c.Log.DebugContext(ctx, "nodes with an older driver are not told the authorities", logging.KeyError, err)
	}
}

// source gives what the Secret contains: in certificates.SelfManaged after the next step that is due.
func (c *certificate) source(ctx context.Context) (map[string][]byte, error) {
	var written error
	for range certificateAttempts {
		data, version, err := c.Store.Secret(ctx, c.SecretName)
		switch {
		case err != nil:
			return nil, err
		case version == "":
			return nil, errors.New("it is not there")
		case c.Mode != certificates.SelfManaged:
			return data, nil
		}
		next, stepped, err := certificates.Issue(data, c.DNSName, c.Now())
		if err != nil || !stepped {
			return next, err
		}
		// If this fails, another replica may have taken the step, so what it wrote is read.
		if written = c.Store.WriteSecret(ctx, c.SecretName, version, next); written == nil {
			return next, nil
		}
	}
	return nil, written
}
