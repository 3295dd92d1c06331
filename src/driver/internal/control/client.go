package control

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// requestTimeout is how long a command waits for an answer that has no progress to show.
const requestTimeout = time.Minute

// Client is the side of the commands.
type Client struct {
	socket string
	http   *http.Client
}

// NewClient returns a client of the driver that uses a state directory.
func NewClient(stateDir string) *Client {
	socket := filepath.Join(stateDir, SocketName)
	return &Client{socket: socket, http: &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, // a command asks once
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}}
}

// Status asks for the state of the driver and its pools.
func (c *Client) Status(ctx context.Context) (Status, error) {
	return ask[Status](ctx, c, http.MethodGet, pathStatus)
}

// Volumes asks for all volumes that the driver knows.
func (c *Client) Volumes(ctx context.Context) ([]nodeapi.VolumeStatus, error) {
	return ask[[]nodeapi.VolumeStatus](ctx, c, http.MethodGet, pathVolumes)
}

// Forget makes the node forget the identity of a pool that is absent; known reports whether it had used the pool.
func (c *Client) Forget(ctx context.Context, pool string) (known bool, err error) {
	f, err := ask[forgotten](ctx, c, http.MethodPost, of(pathForget, pool))
	return f.Known, err
}

// Take makes a shared pool this cluster's that belongs to another one, which is gone.
func (c *Client) Take(ctx context.Context, pool, from string) error {
	_, err := c.call(ctx, http.MethodPost, of(pathTake, pool), taking{from})
	return err
}

// Adopt gives the PersistentVolume for a volume that has none, as YAML.
func (c *Client) Adopt(ctx context.Context, id string, a Adoption) (manifest []byte, err error) {
	return c.call(ctx, http.MethodPost, of(pathAdopt, id), a)
}

// Discard moves a volume into the trash that no PersistentVolume names, or only one of the node that is given.
func (c *Client) Discard(ctx context.Context, id, pvOn string) error {
	_, err := c.call(ctx, http.MethodPost, of(pathDiscard, id), disposal{pvOn})
	return err
}

// Enforce makes volumes count to their IDs again, until ctx ends, and gives each line about that to show.
func (c *Client) Enforce(ctx context.Context, s Selection, show func(Progress)) error {
	response, err := c.send(ctx, http.MethodPost, pathEnforce, s)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	for lines := json.NewDecoder(response.Body); ; {
		var p Progress
		if err := lines.Decode(&p); err != nil {
			return fmt.Errorf("the work ended early: %w; what was done stays, run the command again", err)
		}
		if p.ID == "" {
			return nil
		}
		show(p)
	}
}

func of(path, name string) string { return strings.ReplaceAll(path, "{name}", url.PathEscape(name)) }

func ask[T any](ctx context.Context, c *Client, method, path string) (answer T, err error) {
	data, err := c.call(ctx, method, path, nil)
	if err == nil {
		err = json.Unmarshal(data, &answer)
	}
	return answer, err
}

// call reads the whole answer.
func (c *Client) call(ctx context.Context, method, path string, body any) ([]byte, error) {
	brief, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	response, err := c.send(brief, method, path, body)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("read the driver's answer: %w", err)
	}
	return answer, nil
}

// send gives an answer that is no refusal, to be read and closed.
func (c *Client) send(ctx context.Context, method, path string, body any) (*http.Response, error) {
	encoded, encodeErr := json.Marshal(body)
	request, err := http.NewRequestWithContext(ctx, method, "http://driver"+path, bytes.NewReader(encoded))
	if err := cmp.Or(encodeErr, err); err != nil {
		return nil, fmt.Errorf("ask the driver: %w", err)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask the driver at %s: %w; is it running, and are you its user (on a node, root)?",
			c.socket, errors.Unwrap(err))
	}
	if response.StatusCode < http.StatusBadRequest {
		return response, nil
	}
	defer func() { _ = response.Body.Close() }()
	var p problem
	if json.NewDecoder(response.Body).Decode(&p) != nil || p.Error == "" {
		p.Error = response.Status
	}
	return nil, fmt.Errorf("the driver refused: %s", p.Error)
}
