package csi

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/ledger"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/quota"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/transfer"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/kernel/bindmount"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// rooms are the packages below csi: all but those above it.
func rooms(t *testing.T) []string {
	t.Helper()
	above := []string{"app", "csi", "control", "metrics", "registration", "tunnel", "controller"}
	entries, err := os.ReadDir("..")
	if err != nil {
		t.Fatal(err)
	}
	dirs := []string{"../../../internal/kernel/bindmount", "../../../internal/nodeapi"}
	for _, e := range entries {
		if e.IsDir() && !slices.Contains(above, e.Name()) {
			dirs = append(dirs, filepath.Join("..", e.Name()))
		}
	}
	return dirs
}

// declaredSentinels are the exported variables of a package that errors.New makes, read from its source.
func declaredSentinels(t *testing.T, dir string) (names []string) {
	t.Helper()
	paths, err := filepath.Glob(dir + "/*.go")
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s: %v, %v", dir, paths, err)
	}
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			general, ok := decl.(*ast.GenDecl)
			if !ok || general.Tok != token.VAR || strings.HasSuffix(path, "_test.go") {
				continue
			}
			for _, spec := range general.Specs {
				v := spec.(*ast.ValueSpec)
				for i, name := range v.Names {
					if i < len(v.Values) && name.IsExported() && calls(v.Values[i], "errors", "New") {
						names = append(names, file.Name.Name+"."+name.Name)
					}
				}
			}
		}
	}
	return names
}

func calls(e ast.Expr, pkg, function string) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	s, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return ok && x.Name == pkg && s.Sel.Name == function
}

// usedInTable are the sentinels that the table names, read from its source.
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
				if x, ok := s.X.(*ast.Ident); ok {
					used[x.Name+"."+s.Sel.Name] = true
				}
			}
			return true
		})
		return false
	})
	return used
}

func TestEverySentinelHasARow(t *testing.T) {
	used, all := usedInTable(t), 0
	for _, dir := range rooms(t) {
		for _, name := range declaredSentinels(t, dir) {
			all++
			if !used[name] {
				t.Errorf("%s has no row in the table of errors.go", name)
			}
		}
	}
	if all < 25 {
		t.Errorf("found only %d sentinels", all)
	}
}

func TestCodes(t *testing.T) {
	for _, test := range []struct {
		verb verb
		err  error
		want codes.Code
	}{
		{create, ledger.ErrNoSpace, codes.ResourceExhausted},
		{create, ledger.ErrClosed, codes.ResourceExhausted},
		{create, ledger.ErrBusy, codes.Aborted},
		{create, store.ErrConcurrent, codes.Aborted},
		{create, quota.ErrUnsupported, codes.ResourceExhausted},
		{create, quota.ErrExhausted, codes.ResourceExhausted},
		{create, quota.ErrTooSmall, codes.OutOfRange},
		{create, pool.ErrAbsent, codes.ResourceExhausted},
		{create, pool.ErrNotHere, codes.ResourceExhausted},
		{create, pool.ErrUnknown, codes.InvalidArgument},
		{create, pool.ErrAmbiguous, codes.InvalidArgument},
		{create, pool.ErrSeveral, codes.InvalidArgument},
		{create, volume.ErrExists, codes.AlreadyExists},
		{create, transfer.ErrTooLarge, codes.OutOfRange},
		{cut, transfer.ErrTooLarge, codes.FailedPrecondition},
		{remove, volume.ErrCopied, codes.FailedPrecondition},
		{create, volume.ErrOutOfRange, codes.OutOfRange},
		{create, volume.ErrBusy, codes.Aborted},
		{create, volume.ErrInvalid, codes.InvalidArgument},
		{create, nodeapi.ErrInvalidID, codes.InvalidArgument},
		{create, store.ErrBroken, codes.FailedPrecondition},
		{create, store.ErrUnwritten, codes.InvalidArgument},
		{create, errElsewhere, codes.ResourceExhausted},
		{create, volume.ErrLost, codes.DataLoss},
		{create, syscall.EROFS, codes.ResourceExhausted},
		{expand, ledger.ErrNoSpace, codes.FailedPrecondition},
		{expand, ledger.ErrClosed, codes.FailedPrecondition},
		{expand, quota.ErrExhausted, codes.FailedPrecondition},
		{expand, quota.ErrUnsupported, codes.InvalidArgument},
		{expand, quota.ErrNotCounted, codes.FailedPrecondition},
		{expand, syscall.ENOSPC, codes.FailedPrecondition},
		{expand, syscall.EROFS, codes.FailedPrecondition},
		{expand, volume.ErrBelowUse, codes.FailedPrecondition},
		{expand, volume.ErrNotEnforced, codes.FailedPrecondition},
		{expand, pool.ErrAbsent, codes.Unavailable},
		{expand, store.ErrNotFound, codes.NotFound},
		{expand, volume.ErrOutOfRange, codes.OutOfRange},
		{resize, ledger.ErrNoSpace, codes.OutOfRange},
		{resize, ledger.ErrClosed, codes.OutOfRange},
		{resize, quota.ErrExhausted, codes.OutOfRange},
		{resize, syscall.ENOSPC, codes.OutOfRange},
		{resize, syscall.EDQUOT, codes.OutOfRange},
		{resize, quota.ErrNotCounted, codes.OutOfRange},
		{resize, volume.ErrBelowUse, codes.OutOfRange},
		{resize, volume.ErrNotEnforced, codes.OutOfRange},
		{resize, volume.ErrOutOfRange, codes.OutOfRange},
		{resize, quota.ErrUnsupported, codes.InvalidArgument},
		{resize, store.ErrNotFound, codes.NotFound},
		{resize, pool.ErrAbsent, codes.Unavailable},
		{resize, syscall.EROFS, codes.Unavailable},
		{resize, volume.ErrBusy, codes.Aborted},
		{resize, volume.ErrLost, codes.DataLoss},
		{remove, pool.ErrAbsent, codes.Unavailable},
		{remove, nodeapi.ErrClusterUnknown, codes.Unavailable},
		{remove, volume.ErrUncertain, codes.Unavailable},
		{remove, volume.ErrPublished, codes.FailedPrecondition},
		{remove, nodeapi.ErrNamed, codes.FailedPrecondition},
		{remove, volume.ErrUnsupported, codes.FailedPrecondition},
		{remove, pool.ErrPresent, codes.FailedPrecondition},
		{remove, pool.ErrOtherCluster, codes.FailedPrecondition},
		{remove, store.ErrNotFound, codes.OK},
		{remove, store.ErrBroken, codes.FailedPrecondition},
		{remove, syscall.EROFS, codes.Unavailable},
		{publish, pool.ErrAbsent, codes.Unavailable},
		{publish, pool.ErrNotHere, codes.ResourceExhausted},
		{publish, quota.ErrUnsupported, codes.InvalidArgument},
		{publish, store.ErrNotFound, codes.NotFound},
		{publish, volume.ErrTargetTaken, codes.FailedPrecondition},
		{publish, volume.ErrSingleWriter, codes.FailedPrecondition},
		{publish, bindmount.ErrTarget, codes.InvalidArgument},
		{publish, syscall.EROFS, codes.Unavailable},
		{unpublish, syscall.EROFS, codes.Unavailable},
		{read, store.ErrNotFound, codes.NotFound},
		{read, errBadToken, codes.Aborted},
		{
			create, &fs.PathError{Op: "mkdirat", Path: "csi/.hpp/staging/pvc-1", Err: syscall.ENOSPC},
			codes.ResourceExhausted,
		},
		{
			create, &fs.PathError{Op: "write", Path: "csi/.hpp/volumes/pvc-1", Err: syscall.EDQUOT},
			codes.ResourceExhausted,
		},
		{create, context.DeadlineExceeded, codes.DeadlineExceeded},
		{create, context.Canceled, codes.Canceled},
		{create, errors.New("something new"), codes.Internal},
	} {
		for wrap, err := range map[string]error{
			"bare": test.err, "wrapped": fmt.Errorf("pool local: %w", test.err),
			"joined": errors.Join(errors.New("undo"), test.err),
		} {
			if got := status.Code(toStatus(test.verb, err)); got != test.want {
				t.Errorf("%s: %s %v = %s, want %s", test.verb, wrap, test.err, got, test.want)
			}
		}
	}
}

// A PersistentVolume keeps what its class said and the driver knows, and nothing else that a node answers.
func TestParametersAreThoseThatTravel(t *testing.T) {
	known := slices.Sorted(slices.Values(append(nodeapi.Parameters(), names.StoragePoolParameter)))
	if diff := cmp.Diff(slices.Sorted(maps.Keys(setters())), known); diff != "" {
		t.Errorf("the controller and the plugin know other parameters: %s", diff)
	}
}

func TestStatusMessageFitsItsHeader(t *testing.T) {
	got := status.Convert(toStatus(read, errors.New(strings.Repeat("x", 1<<20)+"\xff"))).Message()
	if len(got) > maxMessage+len("…") {
		t.Errorf("the message has %d bytes", len(got))
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
		if err := nodeapi.ValidateID(id); err != nil {
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
			s := volume.Spec{OnDelete: store.Trash}
			if err := apply(&s, "parameters", map[string]string{key: value}, known); err != nil {
				if code := status.Code(toStatus(create, err)); code != codes.InvalidArgument {
					t.Fatalf("%q=%q: %s", key, value, code)
				}
				continue
			}
			if s.UID < 0 || s.GID < 0 || s.Inodes < 0 || s.Bytes < 0 {
				t.Fatalf("%q=%q accepted as %+v", key, value, s)
			}
			if _, ok := known[key]; !ok && !strings.HasPrefix(key, nodeapi.KeysOfKubernetes) {
				t.Fatalf("unknown key %q accepted", key)
			}
		}
	})
}
