package wire_test

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi/wire"
)

// fill sets every field of a struct to a value of its own, but for those that are named.
func fill[T any](t *testing.T, but ...string) (full T) {
	t.Helper()
	v := reflect.ValueOf(&full).Elem()
	for i := range v.NumField() {
		name, n := v.Type().Field(i).Name, int64(i+1)
		if slices.Contains(but, name) {
			continue
		}
		switch field := v.Field(i).Addr().Interface().(type) {
		case *string:
			*field = name + "/of"
		case *[]string:
			*field = []string{name}
		case *bool:
			*field = true
		case **bool:
			*field = new(true)
		case *int:
			*field = int(n)
		case *int64:
			*field = n
		case *[]nodeapi.PoolStatus:
			*field = []nodeapi.PoolStatus{fill[nodeapi.PoolStatus](t)}
		case *[]nodeapi.Warning:
			*field = []nodeapi.Warning{fill[nodeapi.Warning](t)}
		case *[]nodeapi.NodeStatus:
			*field = []nodeapi.NodeStatus{fill[nodeapi.NodeStatus](t)}
		case *[]nodeapi.VolumeWork:
			*field = []nodeapi.VolumeWork{fill[nodeapi.VolumeWork](t)}
		case *nodeapi.Claim:
			*field = fill[nodeapi.Claim](t)
		case *time.Time:
			*field = time.Unix(n, 0)
		default:
			t.Fatalf("%s has the type %T, which is not known here", name, field)
		}
	}
	return full
}

// travelled is a message as it is read from its bytes.
func travelled[M any, P interface {
	*M
	proto.Message
}](t *testing.T, m P) P {
	t.Helper()
	data, err := proto.Marshal(m)
	read := P(new(M))
	if err == nil {
		err = proto.Unmarshal(data, read)
	}
	if err != nil {
		t.Fatal(err)
	}
	return read
}

// TestNoFieldIsLost: whatever is added to a struct of nodeapi has to travel.
func TestNoFieldIsLost(t *testing.T) {
	pool := fill[nodeapi.PoolStatus](t)
	if diff := cmp.Diff(pool, wire.ToPool(travelled(t, wire.FromPool(pool)))); diff != "" {
		t.Errorf("a pool (-sent +read):\n%s", diff)
	}
	back := wire.ToPool(travelled(t, wire.FromPool(nodeapi.PoolStatus{})))
	if diff := cmp.Diff(nodeapi.PoolStatus{}, back); diff != "" {
		t.Errorf("an empty pool (-sent +read):\n%s", diff)
	}
	volume := fill[nodeapi.VolumeStatus](t, "Node", "PV", "State") // whoever lists it adds them
	if diff := cmp.Diff(volume, wire.ToVolume(travelled(t, wire.FromVolume(volume)))); diff != "" {
		t.Errorf("a volume (-sent +read):\n%s", diff)
	}
	listed := fill[nodeapi.VolumeStatus](t)
	if diff := cmp.Diff(listed, wire.ToListed(travelled(t, wire.FromListed(listed)))); diff != "" {
		t.Errorf("a listed volume (-sent +read):\n%s", diff)
	}
	deleted := fill[nodeapi.DeletedVolume](t)
	if diff := cmp.Diff(deleted, wire.ToDeleted(travelled(t, wire.FromDeleted(deleted)))); diff != "" {
		t.Errorf("a deleted volume (-sent +read):\n%s", diff)
	}
	work := fill[nodeapi.Work](t)
	if diff := cmp.Diff(work, wire.ToWork(travelled(t, wire.FromWork(work)))); diff != "" {
		t.Errorf("work (-sent +read):\n%s", diff)
	}
	status := fill[nodeapi.Status](t)
	if diff := cmp.Diff(status, wire.ToStatus(travelled(t, wire.FromStatus(status)))); diff != "" {
		t.Errorf("a driver's status (-sent +read):\n%s", diff)
	}
}
