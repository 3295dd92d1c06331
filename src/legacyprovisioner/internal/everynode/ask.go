package everynode

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/legacyprovisioner/internal/everynode/wire"
)

const (
	// connectTimeout and answerTimeout bound a request to a manager. What takes longer, the removal of a large
	// directory, goes on with the next request.
	connectTimeout = 5 * time.Second
	answerTimeout  = 30 * time.Second
	// maxMessage bounds what is read of an answer, in bytes.
	maxMessage = 512
)

// askManager has a manager do something about the directory of a volume. The token is shown only to who proves to be
// the manager of that node, by the certificate that it has registered.
func (p *Provisioner) askManager(ctx context.Context, method string, m member, path, volume string) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	fields := url.Values{wire.PathField: {path}, wire.VolumeField: {volume}}
	target := url.URL{Scheme: "https", Host: m.address, Path: wire.Directories}
	var body io.Reader
	if method == http.MethodPost {
		body = strings.NewReader(fields.Encode())
	} else {
		target.RawQuery = fields.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, method, target.String(), body)
	if err != nil {
		return err
	}
	token, err := os.ReadFile(p.TokenFile)
	if err != nil {
		return fmt.Errorf("read the token for the managers: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+string(bytes.TrimSpace(token)))
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	client, err := clientOf(m)
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err == nil {
		defer func() { _ = answer.Body.Close() }() // it was read
		if answer.StatusCode == http.StatusOK {
			return nil
		}
	}
	// A manager that is interrupted may answer so before the connection is closed.
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("its manager has not finished within %s; it is asked to go on", answerTimeout)
	}
	if err != nil {
		return unwrapURL(err)
	}
	text, _ := io.ReadAll(io.LimitReader(answer.Body, maxMessage)) // the status says enough
	said := strings.ToValidUTF8(strings.TrimSpace(string(text)), "")
	return fmt.Errorf("its manager answers %s: %s", answer.Status, said)
}

// clientOf trusts one certificate, and follows nobody elsewhere.
func clientOf(m member) (*http.Client, error) {
	trust, err := wire.Trust([]byte(m.certificate))
	if err != nil {
		return nil, err
	}
	return &http.Client{
		Transport: &http.Transport{
			DialContext:     (&net.Dialer{Timeout: connectTimeout}).DialContext,
			TLSClientConfig: trust, TLSHandshakeTimeout: connectTimeout, DisableKeepAlives: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// unwrapURL leaves out the URL, which repeats what the message around it says.
func unwrapURL(err error) error {
	if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
		return wrapped.Err
	}
	return err
}
