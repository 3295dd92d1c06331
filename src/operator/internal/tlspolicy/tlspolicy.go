// Package tlspolicy decides which TLS versions and cipher suites the operator's servers, and the driver's metrics,
// accept: what the administrator set, else OpenShift's TLS security profile, else the profile Intermediate.
package tlspolicy

import (
	"crypto/tls"
	"slices"
	"sync"

	configv1 "github.com/openshift/api/config/v1"
)

// Overrides are the administrator's own settings. An empty field leaves the decision to the profile.
type Overrides struct {
	// MinVersion is VersionTLS10, VersionTLS11, VersionTLS12 or VersionTLS13.
	MinVersion string
	// CipherSuites are IANA names. Those of TLS 1.3 are accepted and change nothing: Go always offers all of them.
	CipherSuites []string
}

// Policy is what is in force, in the names that Kubernetes' own flags use.
type Policy struct {
	// MinVersion is one of VersionTLS10 … VersionTLS13.
	MinVersion string
	// CipherSuites are the suites for TLS 1.2 and older. Empty with VersionTLS13.
	CipherSuites []string
}

// Source has the policy in force. All methods are safe for concurrent use.
type Source struct {
	overrides Overrides

	mu      sync.RWMutex
	current decision
}

// decision is a policy with the constants of crypto/tls for it.
type decision struct {
	policy Policy
	notes  []string
	min    uint16
	suites []uint16
}

// New checks the overrides and starts with the profile Intermediate.
func New(overrides Overrides) (*Source, error) {
	if err := overrides.validate(); err != nil {
		return nil, err
	}
	s := &Source{
		overrides: Overrides{MinVersion: overrides.MinVersion, CipherSuites: slices.Clone(overrides.CipherSuites)},
	}
	s.SetProfile(nil)
	return s, nil
}

// SetProfile takes the cluster's TLS security profile; nil where there is none. It counts from the next handshake on.
func (s *Source) SetProfile(profile *configv1.TLSSecurityProfile) {
	decided := decide(s.overrides, profile)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = decided
}

// Current is the policy in force.
func (s *Source) Current() Policy {
	policy := s.decision().policy
	return Policy{MinVersion: policy.MinVersion, CipherSuites: slices.Clone(policy.CipherSuites)}
}

// Notes says, one sentence each, what of the overrides and the profile could not be followed as written.
func (s *Source) Notes() []string { return slices.Clone(s.decision().notes) }

// Configure makes a server's configuration ask for the policy at each handshake. Call it once, before the server
// starts. HTTP/2 goes off: it forbids suites that a profile may ask for, and neither server gains from it.
func (s *Source) Configure(config *tls.Config) {
	config.NextProtos = []string{"http/1.1"}
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		current := s.decision()
		fresh := config.Clone()
		fresh.GetConfigForClient = nil
		fresh.MinVersion = current.min
		fresh.CipherSuites = slices.Clone(current.suites)
		return fresh, nil
	}
}

func (s *Source) decision() decision {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.current
}
