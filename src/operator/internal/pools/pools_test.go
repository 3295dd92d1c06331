package pools_test

import (
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/google/go-cmp/cmp"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/poolspec"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/pools"
)

// An option that one of the two types lacks could not be set in the resource, or would not reach the driver.
func TestTheResourceHasThePoolOptionsOfTheDriver(t *testing.T) {
	t.Parallel()
	onlyTheOperator := sets.New("snapshotProvider", "overlayClassName")
	resource := options(reflect.TypeFor[v1beta1.StoragePool]()).Difference(onlyTheOperator)
	driver := options(reflect.TypeFor[poolspec.Pool]())
	if diff := cmp.Diff(sets.List(driver), sets.List(resource)); diff != "" {
		t.Errorf("options of the driver's pool and of the resource's (-driver +resource):\n%s", diff)
	}
}

// options are the JSON names of a type's fields, those of our own structs in it included.
func options(of reflect.Type) sets.Set[string] {
	found := sets.New[string]()
	for option := range of.Fields() {
		name, _, _ := strings.Cut(option.Tag.Get("json"), ",")
		found.Insert(name)
		below := option.Type
		if below.Kind() == reflect.Pointer {
			below = below.Elem()
		}
		if below.Name() == "Trash" {
			for option := range options(below) {
				found.Insert(name + "." + option)
			}
		}
	}
	return found
}

// Every option of the resource's pool, set to something, is set in the driver's pool.
func TestReadTakesEveryOption(t *testing.T) {
	t.Parallel()
	var pool v1beta1.StoragePool
	fill(reflect.ValueOf(&pool).Elem())
	pool.Reserve, pool.Trash.Retention = new(intstr.FromString("5%")), "36h"
	read, problems := pools.Read(pool, field.NewPath("pool"))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	for _, value := range []reflect.Value{reflect.ValueOf(read), reflect.ValueOf(read.Trash)} {
		for option, set := range value.Fields() {
			if set.IsZero() {
				t.Errorf("%s.%s is not set in %+v", value.Type(), option.Name, read)
			}
		}
	}
}

// fill sets every field to a value that is not zero.
func fill(value reflect.Value) {
	switch value.Kind() {
	case reflect.Pointer:
		value.Set(reflect.New(value.Type().Elem()))
		fill(value.Elem())
	case reflect.Struct:
		for _, option := range value.Fields() {
			if value.Type().PkgPath() == reflect.TypeFor[v1beta1.StoragePool]().PkgPath() {
				fill(option)
			}
		}
	case reflect.Map:
		value.Set(reflect.ValueOf(map[string]string{"disk": "nvme"}))
	case reflect.String:
		value.SetString("some")
	case reflect.Bool:
		value.SetBool(true)
	case reflect.Int32:
		value.SetInt(40)
	case reflect.Float64:
		value.SetFloat(1.5)
	default:
		panic("no value for " + value.Type().String())
	}
}

func TestPathConfigIsAPool(t *testing.T) {
	t.Parallel()
	spec := v1beta1.HostPathProvisionerSpec{
		PathConfig: &v1beta1.PathConfig{Path: "/var/hpvolumes", UseNamingPrefix: true},
	}
	if diff := cmp.Diff([]v1beta1.StoragePool{{Name: "legacy", Path: "/var/hpvolumes"}},
		pools.FromSpec(spec)); diff != "" {
		t.Error(diff)
	}
	if at := pools.FieldOf(spec, 0).String(); at != "spec.pathConfig" {
		t.Error(at)
	}
	if none := pools.FromSpec(v1beta1.HostPathProvisionerSpec{}); len(none) > 0 {
		t.Error(none)
	}
}

// TestPathConfigInAVolume: what is in a volume, its pods can exchange.
func TestPathConfigInAVolume(t *testing.T) {
	t.Parallel()
	const in = "/var/hpvolumes/csi/pvc-145c785e-ab83-11e7-9432-4201ac1fd019/d"
	found := pools.Validate(v1beta1.HostPathProvisionerSpec{PathConfig: &v1beta1.PathConfig{Path: in}})
	want := `spec.pathConfig.path: Invalid value: "` + in +
		`": it is or lies in a directory that is named like a volume's ` +
		`(pvc-145c785e-ab83-11e7-9432-4201ac1fd019), which that volume's pods can exchange: want a directory that is ` +
		`in no volume, such as /var/hpvolumes`
	if len(found) != 1 || found[0].Error() != want {
		t.Errorf("found %v, want %s", found, want)
	}
}

func TestReadNamesWhatItCannotRead(t *testing.T) {
	t.Parallel()
	read, problems := pools.Read(v1beta1.StoragePool{
		Name: "b", Path: "/b", Reserve: new(intstr.FromString("five%")), Trash: &v1beta1.Trash{Retention: "soon"},
		Inline: true,
	}, field.NewPath("spec", "storagePools").Index(1))
	var got []string
	for _, problem := range problems {
		got = append(got, problem.Error())
	}
	if diff := cmp.Diff([]string{
		`spec.storagePools[1].reserve: Invalid value: "five%": want a whole number of bytes such as "4096" or ` +
			`"10Gi", ` +
			`or a percentage such as "5%"`,
		`spec.storagePools[1].trash.retention: Invalid value: "soon": want a duration: a number with a unit of s, m ` +
			`or h, ` +
			`such as "36h" or "0s"`,
	}, got); diff != "" {
		t.Error(diff)
	}
	if read.Path != "/b" || !read.Inline {
		t.Errorf("the rest was not read: %+v", read)
	}
}

func TestSlashes(t *testing.T) {
	t.Parallel()
	for written, want := range map[string]string{
		"/data": "/data", "/data/": "/data", "//data///a//": "/data/a", "/": "/", "//": "/", "": "", "data/": "data",
		"/data/../srv/": "/data/../srv", "/data/./a": "/data/./a", // these may mean another directory, or a mistake
	} {
		if got := pools.Slashes(written); got != want {
			t.Errorf("%q is read as %q, want %q", written, got, want)
		}
	}
}

// The spec belongs to a cache: reading its pools must not change it.
func TestOfLeavesTheSpecAsItIs(t *testing.T) {
	t.Parallel()
	spec := v1beta1.HostPathProvisionerSpec{StoragePools: []v1beta1.StoragePool{{Name: "a", Path: "/data/"}}}
	if of := pools.FromSpec(spec); of[0].Path != "/data" || spec.StoragePools[0].Path != "/data/" {
		t.Errorf("read as %q, and the spec is %q now", of[0].Path, spec.StoragePools[0].Path)
	}
}
