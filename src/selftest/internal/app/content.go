package app

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// defaultBytes is what `write` writes when not told: 1 MiB.
const defaultBytes = 1 << 20

// pattern returns n bytes that depend on n alone. They look random, so that a
// filesystem can neither compress them nor leave holes.
func pattern(n int64) io.Reader {
	seed := sha256.Sum256(fmt.Appendf(nil, "selftest %d", n))
	return io.LimitReader(rand.NewChaCha8(seed), n)
}

// writeFile replaces path by n bytes of the pattern, makes them durable, and
// prints their checksum.
func writeFile(out io.Writer, path string, n int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(f, sum), pattern(n))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write %d bytes to %s: %w", n, path, err)
	}
	return printSum(out, sum, path)
}

func readFile(out io.Writer, path string) error {
	sum, n, err := sumOf(path)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s  %s  %d bytes\n", hexOf(sum), path, n)
	return err
}

func checksum(out io.Writer, path, want string) error {
	sum, _, err := sumOf(path)
	if err != nil {
		return err
	}
	if want != "" && !strings.EqualFold(want, hexOf(sum)) {
		return fmt.Errorf("%s has sha256 %s, want %s", path, hexOf(sum), want)
	}
	return printSum(out, sum, path)
}

func sumOf(path string) (sum hash.Hash, n int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	sum = sha256.New()
	n, err = io.Copy(sum, f)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, 0, fmt.Errorf("read %s: %w", path, err)
	}
	return sum, n, nil
}

func hexOf(sum hash.Hash) string { return hex.EncodeToString(sum.Sum(nil)) }

func printSum(out io.Writer, sum hash.Hash, path string) error {
	_, err := fmt.Fprintf(out, "%s  %s\n", hexOf(sum), path)
	return err
}

// fillDirectory writes up to n bytes into a new file in dir and prints how many
// fitted. A full or limited filesystem is an answer, not a failure: the
// second word of the line says which.
func fillDirectory(out io.Writer, dir string, n int64) error {
	f, err := os.CreateTemp(dir, "fill-")
	if err != nil {
		return err
	}
	written, err := io.Copy(f, pattern(n))
	if err == nil {
		err = f.Sync() // some filesystems refuse only here
	}
	word := "all"
	switch {
	case errors.Is(err, syscall.ENOSPC):
		word, err = "full", nil
	case errors.Is(err, syscall.EDQUOT):
		word, err = "quota", nil
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("fill %s with %d bytes: %w", dir, n, err)
	}
	_, err = fmt.Fprintf(out, "%d %s %s\n", written, word, filepath.Base(f.Name()))
	return err
}
