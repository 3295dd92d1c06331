package disk

import "testing"

// TestKeepsNoMissing: options as Linux shows them in mountinfo, which leaves the default out.
func TestKeepsNoMissing(t *testing.T) {
	for options, want := range map[string]bool{
		"rw,vers=4.2,rsize=1048576,hard,proto=tcp,addr=10.0.0.1":                               false,
		"rw,vers=4.2,rsize=1048576,acdirmin=1,acdirmax=3,hard,lookupcache=pos,local_lock=none": true,
		"rw,vers=3,lookupcache=none,addr=10.0.0.1":                                             true,
		"rw,vers=3,context=lookupcache=pos-not,addr=10.0.0.1":                                  false,
		"": false,
	} {
		if got := keepsNoMissing(options); got != want {
			t.Errorf("%q: %v", options, got)
		}
	}
}
