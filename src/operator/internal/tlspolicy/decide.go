package tlspolicy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/openshift/library-go/pkg/crypto"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/servingtls"
)

// modern is the version from which on Go alone chooses the suites.
const modern = string(configv1.VersionTLS13)

// validate refuses names that crypto/tls does not know: a typo must not weaken a server.
func (o Overrides) validate() error {
	var problems []error
	if _, err := servingtls.Version(o.MinVersion); err != nil {
		problems = append(problems, fmt.Errorf("TLS_MIN_VERSION_OVERRIDE: %w", err))
	}
	if _, err := servingtls.Suites(o.CipherSuites); err != nil {
		problems = append(problems, fmt.Errorf("TLS_CIPHERS_OVERRIDE: %w", err))
	}
	return errors.Join(problems...)
}

// decide lays the overrides over the profile.
func decide(overrides Overrides, profile *configv1.TLSSecurityProfile) decision {
	spec, notes := specOf(profile)
	version := string(spec.MinTLSVersion)
	if _, err := servingtls.Version(version); err != nil || version == "" {
		version = string(configv1.TLSProfiles[configv1.TLSProfileIntermediateType].MinTLSVersion)
		notes = append(notes, fmt.Sprintf("the TLS security profile's minTLSVersion %q is unknown: %s is used",
			spec.MinTLSVersion, version))
	}
	if overrides.MinVersion != "" {
		version = overrides.MinVersion
	}
	suites := overrides.CipherSuites
	if len(suites) == 0 {
		var ignored []string
		suites, ignored = translate(spec.Ciphers)
		if len(ignored) > 0 && version != modern {
			notes = append(notes, "the TLS security profile names cipher suites that Go does not have, they are left "+
				"out: "+strings.Join(ignored, ", "))
		}
	}
	chosen := configurable(suites)
	switch {
	case version == modern:
		chosen = nil
	case len(chosen) == 0:
		version = modern
		notes = append(notes, "none of the cipher suites asked for is one of TLS 1.2 or older: "+
			"only TLS 1.3 is served, with the suites that Go chooses")
	case len(chosen) < len(suites):
		notes = append(notes, "the cipher suites of TLS 1.3 cannot be chosen in Go: all of them are served")
	}
	return decided(version, chosen, notes)
}

// decided has numbers for names that are known.
func decided(version string, suites, notes []string) decision {
	d := decision{policy: Policy{MinVersion: version, CipherSuites: suites}, notes: notes}
	d.min, _ = servingtls.Version(version)
	d.suites, _ = servingtls.Suites(suites) // of no use with TLS 1.3 alone, for which there are no names
	return d
}

// specOf is what a profile stands for, and what had to be guessed.
func specOf(profile *configv1.TLSSecurityProfile) (configv1.TLSProfileSpec, []string) {
	intermediate := *configv1.TLSProfiles[configv1.TLSProfileIntermediateType]
	if profile == nil || profile.Type == "" {
		return intermediate, nil
	}
	if profile.Type == configv1.TLSProfileCustomType {
		if profile.Custom == nil {
			why := "the TLS security profile is of type Custom and has no section custom: Intermediate is used"
			return intermediate, []string{why}
		}
		return profile.Custom.TLSProfileSpec, nil
	}
	if spec, known := configv1.TLSProfiles[profile.Type]; known {
		return *spec, nil
	}
	return intermediate, []string{
		fmt.Sprintf("the TLS security profile's type %q is unknown: Intermediate is used", profile.Type),
	}
}

// translate turns OpenSSL's names into IANA's, one by one, so that what Go does not have can be named.
func translate(openssl []string) (suites, ignored []string) {
	for _, name := range openssl {
		if iana := crypto.OpenSSLToIANACipherSuites([]string{name}); len(iana) > 0 {
			suites = append(suites, iana...)
			continue
		}
		ignored = append(ignored, name)
	}
	return suites, ignored
}

// configurable are the suites that a Go server can be told to serve: those below TLS 1.3.
func configurable(suites []string) []string {
	var chosen []string
	for _, name := range suites {
		older, err := servingtls.Suites([]string{name})
		if err == nil && len(older) > 0 && !slices.Contains(chosen, name) {
			chosen = append(chosen, name)
		}
	}
	return chosen
}
