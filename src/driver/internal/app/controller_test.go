package app_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	pb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestControllerMode runs the driver as the cluster's controller, against an API server with one volume of 5 GiB on a
// node that publishes room for 10.
func TestControllerMode(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		body, ok := map[string]string{
			"/api/v1/persistentvolumes/pvc-1": `{"metadata": {"name": "pvc-1"}, "spec": {"capacity": {"storage": "5Gi"},
				"claimRef": {"namespace": "shop", "name": "data", "uid": "1"},
				"csi": {"driver": "kubevirt.io.hostpath-provisioner", "volumeHandle": "pvc-1",
					"volumeAttributes": {"storagePool": "local"}},
				"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "topology.hostpath.csi/node",
					"operator": "In", "values": ["one"]}]}]}}}}`,
			"/api/v1/persistentvolumes": `{"items": []}`,
			"/api/v1/namespaces/shop/persistentvolumeclaims/data": `{"metadata": {"uid": "1"},
				"status": {"capacity": {"storage": "5Gi"}}}`,
			"/apis/storage.k8s.io/v1/storageclasses": `{"items": [{"metadata": {"name": "local"},
				"provisioner": "kubevirt.io.hostpath-provisioner"}]}`,
			"/apis/storage.k8s.io/v1/namespaces/hpp/csistoragecapacities": `{"items": [{
				"storageClassName": "local", "capacity": "10Gi",
				"nodeTopology": {"matchLabels": {"topology.hostpath.csi/node": "one"}}}]}`,
		}[r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			body = `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}`
		}
		_, _ = w.Write([]byte(body))
	}))
	defer api.Close()
	m := newMachine(t, "storagePools: [{name: local, path: $POOL}]")
	kubeconfig := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"contexts": [{"name": "c", "context": {"cluster": "c"}}],
		"clusters": [{"name": "c", "cluster": {"server": %q}}]}`, api.URL)
	if err := os.WriteFile(m.path("kubeconfig"), []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	m.log = &logBuffer{}
	m.process = m.command(context.WithoutCancel(t.Context()), "--mode=controller", "--endpoint=unix://"+m.path("csi.sock"),
		"--node-name=two", "--config="+m.path("config.yaml"), "--kubeconfig="+m.path("kubeconfig"), "--http-address="+m.http,
		"--pod-namespace=hpp", "--state-dir="+m.path("none"))
	m.process.Stderr = m.log
	if err := m.process.Start(); err != nil {
		t.Fatal(err)
	}
	conn := dial(t, m.path("csi.sock"))
	controller := pb.NewControllerClient(conn)
	ask := func(gib int64) (*pb.ControllerExpandVolumeResponse, error) {
		return controller.ControllerExpandVolume(t.Context(), &pb.ControllerExpandVolumeRequest{
			VolumeId:      "pvc-1",
			CapacityRange: &pb.CapacityRange{RequiredBytes: gib << 30},
		})
	}
	if _, err := ask(16); status.Code(err) != codes.OutOfRange {
		t.Errorf("11 GiB more where there are 10: %v", err)
	}
	if answer, err := ask(15); err != nil || answer.GetCapacityBytes() != 15<<30 || !answer.GetNodeExpansionRequired() {
		t.Errorf("10 GiB more: %v, %v", answer, err)
	}
	if _, err := controller.ControllerExpandVolume(t.Context(),
		&pb.ControllerExpandVolumeRequest{
			VolumeId:      "pvc-9",
			CapacityRange: &pb.CapacityRange{RequiredBytes: 1},
		}); status.Code(err) != codes.NotFound {
		t.Errorf("a volume that nobody knows: %v", err)
	}
	if _, err := controller.CreateVolume(t.Context(),
		&pb.CreateVolumeRequest{Name: "pvc-2"}); status.Code(err) != codes.Unimplemented {
		t.Errorf("the controller makes volumes: %v", err)
	}
	if _, err := os.Stat(m.path("none")); err == nil {
		t.Error("the controller has made a state directory")
	}
}

func TestModeIsChecked(t *testing.T) {
	m := newMachine(t, "storagePools: [{name: local, path: $POOL}]")
	// the latter is --standalone as well
	for _, args := range [][]string{append(m.serveArgs(), "--mode=central"), append(m.serveArgs(), "--mode=controller")} {
		out, err := m.command(t.Context(), args...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "--mode: ") || !strings.Contains(string(out), "controller") {
			t.Errorf("%v: %v, %s", args[len(args)-1], err, out)
		}
	}
}
