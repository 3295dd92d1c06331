package poolspec

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// UnmarshalJSON reads a Go duration: "36h", "90m", "0s", or a bare 0.
func (d *Duration) UnmarshalJSON(data []byte) error {
	text, err := scalar(data)
	if err != nil {
		return fmt.Errorf(`%w: want a duration such as "36h" or "0s"`, err)
	}
	parsed, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf(`%q is no duration: want a number with a unit of s, m or h, such as "36h" or "0s"`, text)
	}
	*d = Duration(parsed)
	return nil
}

// MarshalJSON writes the duration as Go does, "36h0m0s".
func (d Duration) MarshalJSON() ([]byte, error) {
	return json.Marshal(time.Duration(d).String())
}

// UnmarshalJSON reads bytes (a number or a Kubernetes quantity, "10Gi") or a percentage ("5%", "2.5%").
func (r *Reserve) UnmarshalJSON(data []byte) error {
	text, err := scalar(data)
	if err != nil {
		return fmt.Errorf(`%w: want bytes such as "10Gi" or a percentage such as "5%%"`, err)
	}
	if share, ok := strings.CutSuffix(text, "%"); ok {
		percent, err := strconv.ParseFloat(share, 64)
		if err != nil {
			return fmt.Errorf(`%q is no percentage: want a number before the sign, such as "5%%"`, text)
		}
		*r = Reserve{Percent: percent}
		return nil
	}
	bytes, err := ParseBytes(text)
	if err != nil {
		return fmt.Errorf(`%w, or a percentage such as "5%%"`, err)
	}
	*r = Reserve{Bytes: bytes}
	return nil
}

// MarshalJSON writes what UnmarshalJSON reads.
func (r Reserve) MarshalJSON() ([]byte, error) {
	if r.Percent != 0 {
		return json.Marshal(strconv.FormatFloat(r.Percent, 'f', -1, 64) + "%")
	}
	return json.Marshal(resource.NewQuantity(r.Bytes, resource.BinarySI).String())
}

// quantityPattern holds quantities to a length that apimachinery parses at once: "1e-99999999" takes it 43 s.
var quantityPattern = regexp.MustCompile(`^[+-]?[0-9]{1,20}(\.[0-9]{0,9})?([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?$`)

// ParseBytes reads a Kubernetes quantity ("10Gi", "1.5G", "4096") as a whole number of bytes.
func ParseBytes(text string) (int64, error) {
	if !quantityPattern.MatchString(text) {
		return 0, fmt.Errorf(`%q is no quantity: want bytes such as "4096" or "10Gi"`, text)
	}
	quantity, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, fmt.Errorf(`%q is no quantity: want bytes such as "4096" or "10Gi"`, text)
	}
	bytes := quantity.Value()
	if quantity.CmpInt64(bytes) != 0 {
		return 0, fmt.Errorf(`%q is no whole number of bytes: want bytes such as "4096" or "10Gi"`, text)
	}
	return bytes, nil
}

// scalar is the text of a JSON string or number.
func scalar(data []byte) (string, error) {
	var text string
	if json.Unmarshal(data, &text) == nil && string(data) != "null" {
		return text, nil
	}
	var number json.Number
	if err := json.Unmarshal(data, &number); err != nil || number == "" {
		return "", fmt.Errorf("%s is neither text nor a number", data)
	}
	return number.String(), nil
}
