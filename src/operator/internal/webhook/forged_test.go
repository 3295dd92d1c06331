package webhook_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/v1beta1"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/operator/internal/webhook"
)

// TestForgedReviews: whoever reaches the port and does not have the resource's UID hears of no volume, and costs the
// API server one list of the resources at a time.
func TestForgedReviews(t *testing.T) {
	real := resource(pools(pool{Name: "a", Path: "/data"}))
	real.UID = "real"
	forged := with(real.DeepCopy(), func(r *v1beta1.HostPathProvisioner) { r.UID = "forged" })
	elsewhere := resource(pools(pool{Name: "b", Path: "/other"}))
	synctest.Test(t, func(t *testing.T) {
		answer, lists := make(chan struct{}), atomic.Int64{}
		server := fake.NewClientBuilder().WithScheme(scheme()).
			WithObjects(real.DeepCopy(), pv("pv-a", csi("a"), claimed("shop", "data"))).
			WithInterceptorFuncs(interceptor.Funcs{
				List: func(
					ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption,
				) error {
					lists.Add(1)
					<-answer
					return c.List(ctx, list, options...)
				},
			}).Build()
		validator := webhook.New(server, reader(real.DeepCopy()), names.Driver, "hpp")
		answers := make(chan error)
		const reviews = 300
		for i := range reviews {
			go func() {
				var err error
				switch i % 3 {
				case 0:
					_, err = validator.ValidateDelete(t.Context(), forged)
				case 1:
					_, err = validator.ValidateUpdate(t.Context(), forged, elsewhere)
				default:
					_, err = validator.ValidateCreate(t.Context(), with(elsewhere.DeepCopy(),
						func(r *v1beta1.HostPathProvisioner) { r.Name = fmt.Sprint("other-", i) }))
				}
				answers <- err
			}()
		}
		synctest.Wait()
		close(answer)
		for range reviews {
			if err := <-answers; err == nil || strings.Contains(err.Error(), "shop") {
				t.Errorf("a forged review was answered %v", err)
			}
		}
		if n := lists.Load(); n != 1 {
			t.Errorf("%d reviews cost %d lists, want 1", reviews, n)
		}
		judged(t, ask(t, server, admissionv1.Delete, real, nil), []string{
			`the HostPathProvisioner "hostpath-provisioner" still has 1 volume: shop/data (pv-a); delete their ` +
				`claims first, or set ` + override + ` on it to delete it and leave the data on the nodes`,
		})
	})
}

// A resource that the cache does not know yet is asked for: its first change may come at once.
func TestTheCacheIsLate(t *testing.T) {
	young := resource(pools(pool{Name: "a", Path: "/data"}))
	young.UID = "new"
	grown := with(young.DeepCopy(), func(r *v1beta1.HostPathProvisioner) {
		r.Spec.StoragePools = append(r.Spec.StoragePools, pool{Name: "b", Path: "/other"})
	})
	gone := with(young.DeepCopy(), func(r *v1beta1.HostPathProvisioner) { r.UID = "gone" })
	for what, cache := range map[string]client.Reader{"none": reader(), "the one before": reader(gone)} {
		validator := webhook.New(reader(young.DeepCopy()), cache, names.Driver, "hpp")
		if _, err := validator.ValidateUpdate(t.Context(), young, grown); err != nil {
			t.Errorf("the cache has %s: %v", what, err)
		}
	}
}

// No API server lets a list this long through.
func TestMorePoolsThanTheSchemaTakes(t *testing.T) {
	many := pools()
	for i := range 100_000 {
		many.StoragePools = append(many.StoragePools, pool{Name: fmt.Sprint("p", i), Path: fmt.Sprint("/data/p", i)})
	}
	const want = "spec.storagePools: Too many: 100000: must have at most 64 items"
	judged(t, ask(t, reader(), admissionv1.Create, nil, resource(many)), []string{want})
	judged(t, ask(t, reader(), admissionv1.Update, resource(pools(pool{Name: "a", Path: "/data"})), resource(many)),
		[]string{want})
}
