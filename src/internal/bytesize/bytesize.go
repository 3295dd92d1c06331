// Package bytesize writes sizes for people.
package bytesize

import "strconv"

// Format writes a number of bytes in the largest binary unit that it fills: 10737418240 is "10Gi", 1610612736 is
// "1.5Gi", 512 is "512". What needs more than one decimal is cut, not rounded: a size that is too small by one byte
// must not look as if it were enough.
func Format(bytes int64) string {
	const units = "KMGTPE"
	sign, rest := "", uint64(bytes)
	if bytes < 0 {
		sign, rest = "-", -rest
	}
	unit, suffix := uint64(1), ""
	for i := 0; i < len(units) && rest/unit >= 1024; i++ {
		unit, suffix = unit*1024, units[i:i+1]+"i"
	}
	text := sign + strconv.FormatUint(rest/unit, 10)
	if over := rest % unit; over != 0 {
		text += "." + strconv.FormatUint(over*10/unit, 10) // fits: over is less than 2^60
	}
	return text + suffix
}
