package bytesize_test

import (
	"math"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/bytesize"
)

func TestFormat(t *testing.T) {
	for bytes, want := range map[int64]string{
		0: "0", 1: "1", 1023: "1023", 1024: "1Ki", 1025: "1.0Ki", 1536: "1.5Ki", 10 << 30: "10Gi", 3 << 29: "1.5Gi",
		10<<30 - 1: "9.9Gi", 10<<30 + 4096: "10.0Gi", 1<<20 - 1: "1023.9Ki", 5 << 40: "5Ti", 7 << 50: "7Pi",
		-1: "-1", -(1 << 30): "-1Gi", -(3 << 29): "-1.5Gi",
		math.MaxInt64: "7.9Ei", math.MinInt64: "-8Ei",
	} {
		if got := bytesize.Format(bytes); got != want {
			t.Errorf("%d bytes are written as %q, want %q", bytes, got, want)
		}
	}
}
