package growth_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/growth"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/records"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
)

const gi = 1 << 30

// cluster has volumes of 10 GiB, given to claims of the same name, and room by pool and node.
type cluster struct {
	volumes map[string]growth.Volume
	room    map[string]int64
	given   map[string]int64
	earlier []growth.Grant
	err     error
}

func (c *cluster) Find(_ context.Context, handle string) (growth.Volume, bool, error) {
	v, ok := c.volumes[handle]
	return v, ok, c.err
}

func (c *cluster) Room(_ context.Context, pool, node string) (int64, bool, error) {
	room, ok := c.room[pool+"@"+node]
	return room, ok, c.err
}

func (c *cluster) Given(_ context.Context, claim records.Claim) (int64, bool, error) {
	given, ok := c.given[claim.Name]
	return given, ok, c.err
}

func (c *cluster) Grants(context.Context) ([]growth.Grant, error) {
	all := slices.Clone(c.earlier)
	for handle, v := range c.volumes {
		if v.Bytes > c.given[handle] {
			all = append(all, growth.Grant{Volume: v, To: v.Bytes})
		}
	}
	return all, c.err
}

// write is what csi-resizer does once a growth is allowed.
func (c *cluster) write(handle string, bytes int64) {
	v := c.volumes[handle]
	v.Bytes = bytes
	c.volumes[handle] = v
}

func at(handle, pool, node string) growth.Volume {
	return growth.Volume{
		Handle: handle, Pool: pool, Node: node, Bytes: 10 * gi,
		Claim: records.Claim{Namespace: "ns", Name: handle},
	}
}

func some() *cluster {
	c := &cluster{
		volumes: map[string]growth.Volume{}, given: map[string]int64{},
		room: map[string]int64{"ssd@one": 8 * gi, "ssd@two": 100 * gi, "hdd@one": 1 * gi},
	}
	for _, v := range []growth.Volume{
		at("a", "ssd", "one"), at("b", "ssd", "one"), at("c", "ssd", "two"),
		at("d", "hdd", "one"), at("e", "ssd", ""), at("f", "ssd", "three"),
	} {
		c.volumes[v.Handle] = v
		c.given[v.Handle] = v.Bytes
	}
	return c
}

// ask is one request with what is to come of it.
type ask struct {
	handle string
	to     int64
	err    error
}

func TestExpand(t *testing.T) {
	for name, test := range map[string]struct {
		arrange func(*cluster)
		asks    []ask
	}{
		"as much as there is": {asks: []ask{{"a", 18 * gi, nil}}},
		"more than there is":  {asks: []ask{{"a", 18*gi + 1, volume.ErrOutOfRange}}},
		"two that fit one by one, not together": {asks: []ask{
			{"a", 15 * gi, nil},
			{"b", 14 * gi, volume.ErrOutOfRange},
			{"b", 13 * gi, nil},
		}},
		"other nodes and pools have their own": {asks: []ask{{"a", 18 * gi, nil}, {"c", 60 * gi, nil}, {"d", 11 * gi, nil}}},
		"the same again":                       {asks: []ask{{"a", 18 * gi, nil}, {"a", 18 * gi, nil}}},
		"less than before":                     {asks: []ask{{"a", 18 * gi, nil}, {"a", 12 * gi, nil}, {"b", 16 * gi, nil}}},
		"less than it has":                     {asks: []ask{{"d", 5 * gi, nil}}},
		"of no one node":                       {asks: []ask{{"e", 1000 * gi, nil}}},
		"a node that publishes nothing":        {asks: []ask{{"f", 1000 * gi, nil}}},
		"unknown":                              {asks: []ask{{"x", 11 * gi, records.ErrNotFound}}},
		"bad size":                             {asks: []ask{{"a", -1, volume.ErrInvalid}}},
		"an earlier process allowed": {arrange: func(c *cluster) {
			c.earlier = []growth.Grant{{Volume: c.volumes["a"], To: 15 * gi}}
		}, asks: []ask{{"b", 14 * gi, volume.ErrOutOfRange}, {"b", 13 * gi, nil}}},
		"what an earlier process allowed is given": {arrange: func(c *cluster) {
			c.earlier = []growth.Grant{{Volume: c.volumes["a"], To: 15 * gi}}
			c.given["a"] = 15 * gi
		}, asks: []ask{{"b", 18 * gi, nil}}},
		"the claim is gone": {arrange: func(c *cluster) {
			c.earlier = []growth.Grant{{Volume: c.volumes["a"], To: 15 * gi}}
			delete(c.given, "a")
		}, asks: []ask{{"b", 18 * gi, nil}}},
		"the PersistentVolume has grown, the node has not": {
			arrange: func(c *cluster) { v := c.volumes["a"]; v.Bytes = 14 * gi; c.volumes["a"] = v },
			asks:    []ask{{"a", 18 * gi, nil}, {"a", 19 * gi, volume.ErrOutOfRange}},
		},
		"the API does not answer": {
			arrange: func(c *cluster) { c.err = volume.ErrClusterUnknown },
			asks:    []ask{{"a", 11 * gi, volume.ErrClusterUnknown}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := some()
			if test.arrange != nil {
				test.arrange(c)
			}
			j, err := growth.New(c)
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range test.asks {
				size, err := j.Expand(t.Context(), a.handle, a.to, 0)
				if !errors.Is(err, a.err) || (a.err == nil && size != max(a.to, c.volumes[a.handle].Bytes)) {
					t.Errorf("%s to %d: %d, %v; want %v", a.handle, a.to, size, err, a.err)
				}
				if errors.Is(err, volume.ErrOutOfRange) && !strings.Contains(err.Error(), c.volumes[a.handle].Node) {
					t.Errorf("the sentence does not name the node: %v", err)
				}
			}
		})
	}
}

func TestAGrantCountsUntilTheClaimShowsIt(t *testing.T) {
	c := some()
	j, err := growth.New(c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := j.Expand(t.Context(), "a", 18*gi, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := j.Expand(t.Context(), "b", 11*gi, 0); !errors.Is(err, volume.ErrOutOfRange) {
		t.Errorf("the same room twice: %v", err)
	}
	c.given["a"], c.room["ssd@one"] = 18*gi, 0
	if _, err := j.Expand(t.Context(), "b", 11*gi, 0); !errors.Is(err, volume.ErrOutOfRange) {
		t.Errorf("there is no room left: %v", err)
	}
	c.room["ssd@one"] = 2 * gi // something was deleted
	if _, err := j.Expand(t.Context(), "b", 12*gi, 0); err != nil {
		t.Errorf("room that came back: %v", err)
	}
}

// TestReplicasKnowOfEachOther: the judge beside the leader, again and again another one, counts what the others
// allowed.
func TestReplicasKnowOfEachOther(t *testing.T) {
	c := some()
	c.volumes["g"], c.given["g"] = at("g", "ssd", "one"), 10*gi
	var replicas [2]*growth.Judge
	for i := range replicas {
		j, err := growth.New(c)
		if err != nil {
			t.Fatal(err)
		}
		j.Begin()
		replicas[i] = j
	}
	// The node has room for 8 GiB and is slow: no claim's status shows anything yet.
	for i, turn := range []struct {
		replica int
		begins  bool // its resizer has lost the lease before, and is a new process
		ask
		written bool
	}{
		{0, false, ask{"a", 13 * gi, nil}, true},
		{1, false, ask{"b", 15*gi + 1, volume.ErrOutOfRange}, false},
		{1, false, ask{"b", 13 * gi, nil}, true},
		{0, true, ask{"g", 12*gi + 1, volume.ErrOutOfRange}, false},
		{0, false, ask{"g", 12 * gi, nil}, false}, // its resizer dies before it writes that, and the claim asks for less
		{1, true, ask{"g", 11 * gi, nil}, true},
		{0, true, ask{"a", 14*gi + 1, volume.ErrOutOfRange}, false},
		{0, false, ask{"a", 14 * gi, nil}, true},
	} {
		j := replicas[turn.replica]
		if turn.begins {
			j.Begin()
		}
		_, err := j.Expand(t.Context(), turn.handle, turn.to, 0)
		if !errors.Is(err, turn.err) {
			t.Errorf("turn %d: replica %d, %s to %d: %v; want %v", i, turn.replica, turn.handle, turn.to, err, turn.err)
		}
		if turn.written {
			c.write(turn.handle, turn.to)
		}
	}
}
