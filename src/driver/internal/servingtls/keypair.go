package servingtls

import (
	"crypto/tls"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
)

// keyPair is a certificate and its key on disk.
type keyPair struct {
	dir string
	log *slog.Logger

	mu       sync.Mutex
	current  *tls.Certificate
	crt, key fs.FileInfo // as they were when they were last read
}

// get gives the pair that is on disk, or if that cannot be used the last one that could: the kubelet replaces both
// files at once, other people do not.
func (p *keyPair) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.refresh()
	if p.current == nil {
		return nil, err
	}
	if err != nil {
		p.log.Warn("serving the certificate from before", logging.KeyError, err)
	}
	return p.current, nil
}

// refresh reads the files if they are others than those last read. What is wrong with them is said once.
func (p *keyPair) refresh() error {
	crtFile, keyFile := filepath.Join(p.dir, "tls.crt"), filepath.Join(p.dir, "tls.key")
	crt, crtErr := os.Stat(crtFile)
	key, keyErr := os.Stat(keyFile)
	for _, err := range []error{crtErr, keyErr} {
		if err != nil {
			return fmt.Errorf("look at the certificate: %w", err)
		}
	}
	if same(crt, p.crt) && same(key, p.key) {
		return nil
	}
	p.crt, p.key = crt, key
	pair, err := tls.LoadX509KeyPair(crtFile, keyFile)
	if err != nil {
		return fmt.Errorf("read the certificate in %s: %w", p.dir, err)
	}
	p.current = &pair
	return nil
}

// same reports whether a file is the one from before, unchanged.
func same(now, before fs.FileInfo) bool {
	return before != nil && os.SameFile(now, before) && now.ModTime().Equal(before.ModTime()) &&
		now.Size() == before.Size()
}
