package csi

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

// declaredSentinels are the Err… variables of package volume, read from its source.
func declaredSentinels(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../volume/errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, decl := range file.Decls {
		general, ok := decl.(*ast.GenDecl)
		if !ok || general.Tok != token.VAR {
			continue
		}
		for _, spec := range general.Specs {
			for _, name := range spec.(*ast.ValueSpec).Names {
				if strings.HasPrefix(name.Name, "Err") {
					names = append(names, name.Name)
				}
			}
		}
	}
	return names
}

// usedInTable are the sentinels of package volume that the table names, read from its source.
func usedInTable(t *testing.T) map[string]bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		function, ok := n.(*ast.FuncDecl)
		if !ok || function.Name.Name != "table" {
			return true
		}
		ast.Inspect(function, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := s.X.(*ast.Ident); ok && x.Name == "volume" {
					used[s.Sel.Name] = true
				}
			}
			return true
		})
		return false
	})
	return used
}

func TestEverySentinelHasARow(t *testing.T) {
	declared := declaredSentinels(t)
	if len(declared) < 10 {
		t.Fatalf("found only %v in ../volume/errors.go", declared)
	}
	used := usedInTable(t)
	for _, name := range declared {
		if !used[name] {
			t.Errorf("volume.%s has no row in the table of errors.go", name)
		}
	}
}

func TestCodes(t *testing.T) {
	for _, test := range []struct {
		verb verb
		err  error
		want codes.Code
	}{
		{create, volume.ErrNoSpace, codes.ResourceExhausted},
		{create, volume.ErrUnsupported, codes.ResourceExhausted},
		{publish, volume.ErrUnsupported, codes.InvalidArgument},
		{expand, volume.ErrNoSpace, codes.FailedPrecondition},
		{expand, syscall.ENOSPC, codes.FailedPrecondition},
		{expand, volume.ErrBelowUse, codes.FailedPrecondition},
		{expand, volume.ErrNotEnforced, codes.FailedPrecondition},
		{expand, volume.ErrPoolAbsent, codes.Unavailable},
		{expand, volume.ErrNotFound, codes.NotFound},
		{expand, volume.ErrOutOfRange, codes.OutOfRange},
		{create, volume.ErrPoolAbsent, codes.ResourceExhausted},
		{create, volume.ErrPoolNotHere, codes.ResourceExhausted},
		{create, volume.ErrPoolUnknown, codes.InvalidArgument},
		{create, volume.ErrExists, codes.AlreadyExists},
		{create, volume.ErrOutOfRange, codes.OutOfRange},
		{create, volume.ErrBusy, codes.Aborted},
		{create, volume.ErrInvalid, codes.InvalidArgument},
		{create, &volume.InvalidIDError{ID: "../x"}, codes.InvalidArgument},
		{create, errElsewhere, codes.ResourceExhausted},
		{create, volume.ErrLost, codes.DataLoss},
		{remove, volume.ErrPoolAbsent, codes.Unavailable},
		{remove, volume.ErrClusterUnknown, codes.Unavailable},
		{remove, volume.ErrPublished, codes.FailedPrecondition},
		{remove, volume.ErrNotFound, codes.OK},
		{remove, volume.ErrBroken, codes.FailedPrecondition},
		{publish, volume.ErrPoolAbsent, codes.Unavailable},
		{publish, volume.ErrNotFound, codes.NotFound},
		{publish, volume.ErrTargetTaken, codes.FailedPrecondition},
		{publish, volume.ErrSingleWriter, codes.FailedPrecondition},
		{read, volume.ErrNotFound, codes.NotFound},
		{read, errBadToken, codes.Aborted},
		{create, &fs.PathError{Op: "mkdirat", Path: "csi/.hpp/staging/pvc-1", Err: syscall.ENOSPC}, codes.ResourceExhausted},
		{create, &fs.PathError{Op: "write", Path: "csi/.hpp/volumes/pvc-1", Err: syscall.EDQUOT}, codes.ResourceExhausted},
		{create, context.DeadlineExceeded, codes.DeadlineExceeded},
		{create, context.Canceled, codes.Canceled},
		{create, errors.New("something new"), codes.Internal},
	} {
		for wrap, err := range map[string]error{"bare": test.err, "wrapped": fmt.Errorf("pool local: %w", test.err), "joined": errors.Join(errors.New("undo"), test.err)} {
			if got := status.Code(toStatus(test.verb, err)); got != test.want {
				t.Errorf("%s: %s %v = %s, want %s", test.verb, wrap, test.err, got, test.want)
			}
		}
	}
}

func TestStatusMessageFitsItsHeader(t *testing.T) {
	got := status.Convert(toStatus(read, errors.New(strings.Repeat("x", 1<<20)+"\xff"))).Message()
	if len(got) > maxMessage+len("…") {
		t.Errorf("the message has %d bytes", len(got))
	}
}

func TestNearest(t *testing.T) {
	known := []string{"directoryMode", "gid", "inodeLimit", "onDelete", "storagePool", "uid"}
	for word, want := range map[string]string{
		"storagepool": "storagePool", "storagPool": "storagePool", "directorymod": "directoryMode", "ondelete": "onDelete", "uide": "uid",
		"snapshotClass": "", "": "", strings.Repeat("storagePool", 20): "",
	} {
		if got := nearest(word, known); got != want {
			t.Errorf("nearest(%.20q) = %q, want %q", word, got, want)
		}
	}
}

func FuzzToken(f *testing.F) {
	for _, seed := range []string{"", "invalid-token", toToken("pvc-1"), "after.", "after.Li4vLi4", "after.!"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, token string) {
		id, err := fromToken(token)
		if err != nil || token == "" {
			return
		}
		if err := volume.ValidateID(id); err != nil {
			t.Fatalf("token %q gives %q", token, id)
		}
		again, err := fromToken(toToken(id))
		if err != nil || again != id {
			t.Fatalf("token of %q gives %q, %v", id, again, err)
		}
	})
}

func FuzzParameters(f *testing.F) {
	f.Add("storagePool", "local")
	f.Add("directoryMode", "0777")
	f.Add("directoryMode", "04777")
	f.Add("uid", "4294967295")
	f.Add("gid", "-1")
	f.Add("inodeLimit", "9223372036854775808")
	f.Add("onDelete", "keep")
	f.Add("size", "1e-99999999")
	f.Add("csi.storage.k8s.io/pvc/name", "a")
	f.Fuzz(func(t *testing.T, key, value string) {
		for _, known := range []map[string]func(*volume.Spec, string) error{setters(), inlineSetters()} {
			s := volume.Spec{OnDelete: volume.Trash}
			if err := apply(&s, "parameters", map[string]string{key: value}, known); err != nil {
				if code := status.Code(toStatus(create, err)); code != codes.InvalidArgument {
					t.Fatalf("%q=%q: %s", key, value, code)
				}
				continue
			}
			if s.UID < 0 || s.GID < 0 || s.Inodes < 0 || s.Bytes < 0 {
				t.Fatalf("%q=%q accepted as %+v", key, value, s)
			}
			if _, ok := known[key]; !ok && !strings.HasPrefix(key, keysOfKubernetes) {
				t.Fatalf("unknown key %q accepted", key)
			}
		}
	})
}
