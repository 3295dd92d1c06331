package control

import (
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
	"text/tabwriter"
	"time"
)

// Client is the side of the commands.
type Client struct {
	socket string
	http   *http.Client
}

// NewClient returns a client of the driver that uses a state directory.
func NewClient(stateDir string) *Client {
	socket := filepath.Join(stateDir, SocketName)
	return &Client{socket: socket, http: &http.Client{
		Timeout: time.Minute,
		Transport: &http.Transport{
			DisableKeepAlives: true, // a command asks once
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "unix", socket)
			},
		},
	}}
}

// Status asks for the state of the driver and its pools.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var s Status
	err := c.call(ctx, http.MethodGet, pathStatus, &s)
	return s, err
}

// Forget makes the node forget the identity of a pool that is absent.
func (c *Client) Forget(ctx context.Context, pool string) error {
	return c.call(ctx, http.MethodPost, strings.ReplaceAll(pathForget, "{name}", url.PathEscape(pool)), nil)
}

// call reads the answer into a value, if there is one to be read.
func (c *Client) call(ctx context.Context, method, path string, into any) error {
	request, err := http.NewRequestWithContext(ctx, method, "http://driver"+path, http.NoBody)
	if err != nil {
		return fmt.Errorf("ask the driver: %w", err)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return fmt.Errorf("ask the driver at %s: %w; is it running, and are you root on its node?", c.socket, errors.Unwrap(err))
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode >= http.StatusBadRequest {
		var p problem
		if json.NewDecoder(response.Body).Decode(&p) != nil || p.Error == "" {
			p.Error = response.Status
		}
		return fmt.Errorf("the driver refused: %s", p.Error)
	}
	if into == nil {
		return nil
	}
	if err := json.NewDecoder(response.Body).Decode(into); err != nil {
		return fmt.Errorf("read the driver's answer: %w", err)
	}
	return nil
}

// WriteTable writes a status for a person: one line per pool, and below it what is wrong.
func WriteTable(w io.Writer, s Status) error {
	table := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintf(table, "%s %s on node %s\n\n", s.Driver, s.Version, s.Node)
	fmt.Fprintln(table, "POOL\tSTATE\tBACKEND\tENFORCEMENT\tSIZE\tFREE\tAVAILABLE\tPROMISED\tVOLUMES\tTRASH\tORPHANS\tLOST\tPATH")
	for _, p := range s.Pools {
		if p.State != Present {
			fmt.Fprintf(table, "%s\t%s\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\t%s\n", p.Name, p.State, p.Path)
			continue
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%s\n", p.Name, p.State, p.Backend, p.Enforcement,
			size(p.Size), size(p.Free), size(p.Available), size(p.Promised), p.Volumes, p.Trash, p.Orphans, p.Lost+p.Refused, p.Path)
	}
	for _, p := range s.Pools {
		if p.Message != "" {
			fmt.Fprintf(table, "\n%s: %s: %s\n", p.Name, p.Reason, p.Message)
		}
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write the status: %w", err)
	}
	return nil
}

// size is a number of bytes for a person.
func size(bytes int64) string {
	const unit = 1024
	if bytes < unit {
		return fmt.Sprintf("%d", bytes)
	}
	value, suffix := float64(bytes)/unit, "KMGTPE"
	for value >= unit && len(suffix) > 1 {
		value, suffix = value/unit, suffix[1:]
	}
	return fmt.Sprintf("%.1f%ci", value, suffix[0])
}
