package poolspec

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// UnmarshalJSON reads a Go duration: "36h", "90m", "0s", or a bare 0.
func (d *Duration) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return nil
	}
	parsed, err := time.ParseDuration(strings.Trim(string(data), `"`))
	if err != nil {
		return errors.New(`want a duration: a number with a unit of s, m or h, such as "36h" or "0s"`)
	}
	*d = Duration(parsed)
	return nil
}

// MarshalJSON writes the duration as Go does, "36h0m0s".
func (d Duration) MarshalJSON() ([]byte, error) {
	return json.Marshal(time.Duration(d).String())
}

// UnmarshalJSON reads bytes (a number or a Kubernetes quantity, "10Gi") or a percentage ("5%", "2.5%").
func (r *Reserve) UnmarshalJSON(data []byte) (err error) {
	if string(data) == "null" {
		return nil
	}
	read, text := Reserve{}, strings.Trim(string(data), `"`)
	if share, ok := strings.CutSuffix(text, "%"); ok {
		read.Percent, err = strconv.ParseFloat(share, 64)
	} else {
		read.Bytes, err = ParseBytes(text)
	}
	if err != nil {
		return errors.New(`want a whole number of bytes such as "4096" or "10Gi", or a percentage such as "5%"`)
	}
	*r = read
	return nil
}

// MarshalJSON writes what UnmarshalJSON reads.
func (r Reserve) MarshalJSON() ([]byte, error) {
	if r.Percent != 0 {
		return json.Marshal(strconv.FormatFloat(r.Percent, 'f', -1, 64) + "%")
	}
	return json.Marshal(resource.NewQuantity(r.Bytes, resource.BinarySI).String())
}

// quantityPattern admits quantities that apimachinery parses at once: "1e-99999999" takes it 43 s.
var quantityPattern = regexp.MustCompile(
	`^[+-]?[0-9]{1,20}(\.[0-9]{0,9})?([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?$`)

// ParseBytes reads a Kubernetes quantity ("10Gi", "1.5G", "4096") as a whole number of bytes.
func ParseBytes(text string) (int64, error) {
	if quantityPattern.MatchString(text) {
		quantity, err := resource.ParseQuantity(text)
		if bytes := quantity.Value(); err == nil && quantity.CmpInt64(bytes) == 0 {
			return bytes, nil
		}
	}
	return 0, fmt.Errorf(`%q is no whole number of bytes: want a quantity such as "4096" or "10Gi"`, text)
}
