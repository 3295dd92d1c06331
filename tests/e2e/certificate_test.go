package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/yaml"
)

// Objects of the controller's certificate.
const (
	controllerService = fullName + "-controller"
	controllerSecret  = fullName + "-controller-certificate"
	selfManagedSecret = fullName + "-controller-tls"
	controllerCA      = fullName + "-controller-authorities"
	// serviceCA is the ConfigMap that OpenShift's service CA fills in, and its key.
	serviceCA    = fullName + "-controller-service-ca"
	serviceCAKey = "service-ca.crt"
	ownSecret    = "hpp-controller" // as docs/how-to/certificates.md has it
)

func TestControllerCertificates(t *testing.T) {
	nightly(t)
	alone(t, "the certificate by which nodes know the controller comes from each of four places",
		step{"CertManagerRuns", func(s *scene) {
			s.startCertManager()
			s.whenDone(func(ctx context.Context) error { return s.install(ctx, s.values("info")) })
		}},
		step{"SelfManagedAndMadeAnew", func(s *scene) {
			authority := s.authorityOf(selfManagedSecret)
			old := authority()
			s.typed("how-to/certificates.md", `"op": "remove"`)
			s.eventually("there is another authority", func() (bool, string) {
				now := authority()
				return now != "" && now != old, now
			})
			s.trusts(controllerCA, "ca.crt", authority)
			var trusted corev1.ConfigMap
			s.must(s.api.Get(s.ctx, controllerCA, namespace, &trusted))
			if strings.Contains(trusted.Data["ca.crt"], old) {
				s.t.Error("the nodes still trust the authority from before")
			}
			s.serves("self-managed")
		}},
		step{"ExistingSecret", func(s *scene) {
			const folder = "/run/e2e-certificate/"
			node, made := s.cluster.Name()+"-control-plane", s.makeCertificate() // where kubectl runs
			for name, content := range made {
				s.onNode(node, "mkdir -p "+folder+"; cat > "+folder+name+" <<'EOF'\n"+string(content)+"EOF")
			}
			s.whenDone(func(ctx context.Context) error {
				_, err := s.cluster.Kubectl(ctx, nil, "delete", "secret", ownSecret, "--namespace", namespace)
				return err
			})
			s.typed("how-to/certificates.md", "create secret", "--from-file=", "--from-file="+folder)
			s.trusts(controllerCA, "ca.crt", func() string { return string(made["ca.crt"]) })
			s.serves("existing")
		}},
		// The test is its service CA. It comes before cert-manager, which would make the Secret again.
		step{"OpenShift", func(s *scene) {
			signed := s.makeCertificate()
			s.create(&corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Name: controllerSecret, Namespace: namespace},
				Type:       corev1.SecretTypeTLS, Data: signed,
			})
			injected := make(chan error, 1)
			go func() { injected <- s.inject(string(signed["ca.crt"])) }()
			s.certificatesFrom("openshift")
			s.must(<-injected)
			var service corev1.Service
			s.must(s.api.Get(s.ctx, controllerService, namespace, &service))
			const asked = "service.beta.openshift.io/serving-cert-secret-name"
			if got := service.Annotations[asked]; got != controllerSecret {
				s.t.Errorf("the Service asks for its certificate in Secret %q, want %s", got, controllerSecret)
			}
			s.trusts(serviceCA, serviceCAKey, s.authorityOf(controllerSecret))
			s.serves("openshift")
		}},
		step{"CertManager", func(s *scene) {
			s.certificatesFrom("cert-manager")
			s.trusts(controllerCA, "ca.crt", s.authorityOf(controllerSecret))
			s.serves("cert-manager")
		}},
		step{"SelfManagedAgain", func(s *scene) {
			s.must(s.install(s.ctx, s.values("info")))
			s.trusts(controllerCA, "ca.crt", s.authorityOf(selfManagedSecret))
			s.serves("again")
		}},
	)
}

// certificatesFrom changes the mode of the certificate, which replaces the controller's pod.
func (s *scene) certificatesFrom(mode string) {
	s.t.Helper()
	s.must(s.install(s.ctx, s.valuesWith(map[string]any{"certificates": mode})))
}

// serves waits until all nodes are connected to a controller that serves.
func (s *scene) serves(claim string) {
	s.t.Helper()
	begin := time.Now()
	s.readyControllers(1)
	s.allConnected()
	s.t.Logf("all nodes are connected %s after the upgrade", seconds(begin))
	s.create(s.claim(claim, classOf(poolLocal), "16Mi"))
	s.output(s.pod(claim, claimed(claim), writeData()...))
	s.deletePod(claim)
}

// trusts waits until the ConfigMap from which the nodes have the controller's authority has the one given.
func (s *scene) trusts(configMap, key string, authority func() string) {
	s.t.Helper()
	s.eventually("ConfigMap "+configMap+" has the authority", func() (bool, string) {
		var has corev1.ConfigMap
		err, want := s.api.Get(s.ctx, configMap, namespace, &has), authority()
		all := want != ""
		// it may be several, in another order
		for one := range strings.SplitAfterSeq(want, "-----END CERTIFICATE-----") {
			all = all && strings.Contains(has.Data[key], strings.TrimSpace(one))
		}
		return all, fmt.Sprintf("%v, %v, want\n%s", has.Data, err, want)
	})
}

// authorityOf gives what a Secret has as the authority of its certificate at the time of a call.
func (s *scene) authorityOf(secret string) func() string {
	return func() string {
		var has corev1.Secret
		if err := s.api.Get(s.ctx, secret, namespace, &has); err != nil {
			return ""
		}
		return strings.TrimSpace(string(has.Data["ca.crt"]))
	}
}

// makeCertificate makes a certificate for the controller's Service, of an authority made for it, in files as a Secret
// has them.
func (s *scene) makeCertificate() map[string][]byte {
	s.t.Helper()
	chain, key, err := cert.GenerateSelfSignedCertKey(controllerService+"."+namespace+".svc", nil, nil)
	s.must(err)
	const end = "-----END CERTIFICATE-----\n"
	leaf, authority, found := strings.Cut(string(chain), end)
	if !found || !strings.Contains(authority, end) {
		s.t.Fatalf("want a certificate and its authority:\n%s", chain)
	}
	return map[string][]byte{"tls.crt": []byte(leaf + end), "tls.key": key, "ca.crt": []byte(authority)}
}

// inject writes an authority into the ConfigMap as soon as it is there, as OpenShift's service CA does.
func (s *scene) inject(authority string) error {
	patch, err := json.Marshal(map[string]any{"data": map[string]string{serviceCAKey: authority}})
	if err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(s.ctx, interval, waitTimeout, true, func(ctx context.Context) (bool, error) {
		_, err := s.cluster.Kubectl(ctx, nil, "patch", "configmap", serviceCA, "--namespace", namespace,
			"--type", "merge", "--patch", string(patch))
		return err == nil, nil
	})
}

// startCertManager runs cert-manager's controller on this machine until the feature is over. Its webhook only checks
// what users write, its CA injector only serves webhooks.
func (s *scene) startCertManager() {
	s.t.Helper()
	binary := filepath.Join(strings.TrimSpace(s.golang("run", "./cluster", "assets", "cert-manager")), "controller")
	var module struct{ Dir string }
	s.must(json.Unmarshal([]byte(s.golang("mod", "download", "-json", "github.com/cert-manager/cert-manager@v1.11.5")),
		&module))
	files, err := filepath.Glob(filepath.Join(module.Dir, "deploy", "crds", "crd-*.yaml"))
	s.must(err)
	if len(files) == 0 {
		s.t.Fatalf("no definitions of cert-manager's kinds in %s", module.Dir)
	}
	for _, file := range files {
		s.defineKind(file)
	}
	log, err := os.Create(filepath.Join(s.artifacts, "cert-manager.log"))
	s.must(err)
	controller := exec.CommandContext(context.WithoutCancel(s.ctx), binary, "--kubeconfig="+s.cluster.Kubeconfig(),
		"--leader-elect=false", "--cluster-resource-namespace="+namespace, "--metrics-listen-address=127.0.0.1:0")
	controller.Stdout, controller.Stderr = log, log
	s.must(controller.Start())
	s.whenDone(func(context.Context) error {
		err := controller.Process.Kill()
		_ = controller.Wait() // it was killed
		_ = log.Close()
		return err
	})
}

// golang runs the go command in tests/ and gives its stdout.
func (s *scene) golang(args ...string) string {
	s.t.Helper()
	command := exec.CommandContext(s.ctx, "go", args...)
	command.Dir = filepath.Join(s.root, "tests")
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		s.t.Fatalf("%s: %v\n%s", command, err, stderr.String())
	}
	return string(out)
}

// defineKind makes a CustomResourceDefinition, without the labels, which are what cert-manager's chart would fill in.
func (s *scene) defineKind(file string) {
	s.t.Helper()
	var definition map[string]any
	data, err := os.ReadFile(file)
	s.must(err)
	s.must(yaml.Unmarshal(data, &definition))
	metadata, _ := definition["metadata"].(map[string]any)
	delete(metadata, "labels")
	data, err = json.Marshal(definition)
	s.must(err)
	_, err = s.cluster.Kubectl(s.ctx, bytes.NewReader(data), "apply", "--server-side", "--filename", "-")
	s.must(err)
	s.deleteWhenDone("customresourcedefinition", fmt.Sprint(metadata["name"]))
}
