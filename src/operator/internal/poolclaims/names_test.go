package poolclaims

import (
	"strings"
	"testing"
)

// TestNames: kubevirt's rule by hand (storagepool.go and util.go of its operator, 03d4d671): a name of more than 63 is
// its prefix and the FNV-1a hash (32 bits, 8 hexadecimal digits) of the whole name; of a label's value, the pool is cut
// to 50 and followed by its own hash.
func TestNames(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ got, want string }{
		{ClaimName("local", "node01"), "hpp-pool-local-node01"},
		{ClaimName("local", "ip-10-0-1-2.eu-west-1.internal"), "hpp-pool-local-ip-10-0-1-2.eu-west-1.internal"},
		// 9 + 5 + 1 + 48 = 63: not shortened.
		{ClaimName("local", strings.Repeat("n", 48)), "hpp-pool-local-" + strings.Repeat("n", 48)},
		{ClaimName("local", strings.Repeat("n", 49)), "hpp-pool-0994a589"},
		{ClaimName("local", "worker-0.a-cluster-with-a-long-name.example.com.and.a.domain"), "hpp-pool-2daad4f3"},
		{SharedClaimName("overlay"), "hpp-pool-overlay-shared"},
		// 9 + 47 + 7 = 63: not shortened.
		{SharedClaimName(strings.Repeat("p", 47)), "hpp-pool-" + strings.Repeat("p", 47) + "-shared"},
		{SharedClaimName(strings.Repeat("p", 48)), "hpp-pool-fb8ff80f"},
		{LabelValue("local"), "local-hpp"},
		{LabelValue(strings.Repeat("p", 59)), strings.Repeat("p", 59) + "-hpp"},
		{LabelValue(strings.Repeat("p", 60)), strings.Repeat("p", 50) + "-73896435-hpp"},
	} {
		if test.got != test.want || len(test.got) > 63 {
			t.Errorf("%s (%d), want %s", test.got, len(test.got), test.want)
		}
	}
}
