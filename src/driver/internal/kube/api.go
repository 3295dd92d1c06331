package kube

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/buildinfo"
)

const (
	// asObject and asMetadata are what the API is asked for: an object, or what every object has.
	asObject   = "application/json"
	asMetadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	asList     = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	// answerTimeout is within what the API begins to answer, a watch too.
	answerTimeout = 10 * time.Second
	// maxStatus bounds what is read of an answer that says what is wrong, in bytes.
	maxStatus = 1 << 16
	// maxRest bounds what is read of an answer behind its object, in bytes: only a connection whose answer was read to
	// its end is used again, for idleTimeout.
	maxRest, idleTimeout = 1 << 10, 90 * time.Second
)

// API is the Kubernetes API, of which this reads little: client-go would be half of a privileged binary.
type API struct {
	Server string // https://host:port
	Client *http.Client
	// Token gives what shows the API who asks.
	Token func() (string, error)
}

// Connect returns the API of the cluster that this process runs in, with what the kubelet has put into a directory for
// the pod's ServiceAccount: the files token and ca.crt, which are replaced from time to time.
func Connect(account string, getenv func(string) string) (*API, error) {
	host, port := getenv("KUBERNETES_SERVICE_HOST"), getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return nil, errors.New("find the Kubernetes API: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT, which " +
			"the kubelet sets in pods, are empty; without a cluster use --standalone")
	}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		authorities, err := os.ReadFile(filepath.Join(account, "ca.crt"))
		if err != nil {
			return nil, fmt.Errorf("read the authorities of the Kubernetes API: %w", err)
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(authorities) {
			return nil, fmt.Errorf("%s/ca.crt contains no certificate", account)
		}
		dialer := tls.Dialer{Config: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, ServerName: host}}
		return dialer.DialContext(ctx, network, address)
	}
	return &API{
		Server: "https://" + net.JoinHostPort(host, port),
		Client: &http.Client{Transport: &http.Transport{
			DialTLSContext: dial, ResponseHeaderTimeout: answerTimeout, IdleConnTimeout: idleTimeout,
		}},
		Token: func() (string, error) {
			token, err := os.ReadFile(filepath.Join(account, "token"))
			return strings.TrimSpace(string(token)), err
		},
	}, nil
}

// open asks for something and gives the body of a good answer. Any other is an error of package apierrors.
func (a *API) open(ctx context.Context, path, accept string, query url.Values) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, a.Server+path+"?"+query.Encode(), http.NoBody)
	if err != nil {
		return nil, err
	}
	token, err := a.Token()
	if err != nil {
		return nil, fmt.Errorf("read the token for the Kubernetes API: %w", err)
	}
	request.Header.Set("Accept", accept)
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("User-Agent", "hostpath-provisioner/"+buildinfo.Version())
	answer, err := a.Client.Do(request)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode == http.StatusOK {
		return answer.Body, nil
	}
	defer func() { _ = answer.Body.Close() }()
	said := apierrors.StatusError{ErrStatus: metav1.Status{Code: int32(answer.StatusCode), Message: answer.Status}}
	_ = json.NewDecoder(io.LimitReader(answer.Body, maxStatus)).Decode(&said.ErrStatus) // a proxy says it otherwise
	return nil, &said
}

// read asks for something and reads the answer.
func (a *API) read(ctx context.Context, path, accept string, query url.Values, into any) error {
	body, err := a.open(ctx, path, accept, query)
	if err != nil {
		return err
	}
	defer func() {
		_, _ = io.CopyN(io.Discard, body, maxRest)
		_ = body.Close()
	}()
	return json.NewDecoder(body).Decode(into)
}
