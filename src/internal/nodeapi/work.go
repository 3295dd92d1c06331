package nodeapi

import (
	"slices"
	"time"
)

// Verbs of Work.
const (
	VerbEnforce = "enforce"
	VerbMeasure = "measure"
)

// Work is what takes longer than anybody may wait. Done and Failed count volumes, Files and Bytes what was seen in all.
type Work struct {
	ID      string    `json:"id,omitempty"`
	Verb    string    `json:"verb"`
	Node    string    `json:"node"`
	What    string    `json:"what"` // it is about, for a person
	Started time.Time `json:"started,omitzero"`
	Ended   time.Time `json:"ended,omitzero"` // zero while it goes on
	Files   int64     `json:"files"`
	Bytes   int64     `json:"bytes"`
	Done    int       `json:"done"`
	Failed  int       `json:"failed"`
	// Errors are those of the first volumes that have failed, Error why the work ended before its time, and Message is
	// what it said last.
	Errors  []string `json:"errors,omitempty"`
	Message string   `json:"message,omitempty"`
	Error   string   `json:"error,omitempty"`
	// Volumes has the last word about each of the first ones.
	Volumes []VolumeWork `json:"volumes,omitempty"`
}

// Tally is work that goes on.
type Tally struct {
	Work
	at VolumeWork // the step that was taken last
}

// VolumeWork is how far the work on a volume is.
type VolumeWork struct {
	ID    string `json:"id"`
	Files int64  `json:"files"`
	Bytes int64  `json:"bytes"`
	Done  bool   `json:"done"`
	Error string `json:"error,omitempty"`
}

const (
	// maxErrors and maxVolumes are how many are kept: a node may have any number of them.
	maxErrors, maxVolumes = 20, 2_000
)

// Take adds a step; those of a volume follow one another.
func (w *Tally) Take(v VolumeWork, message string) {
	if w.at.ID != v.ID {
		w.at = VolumeWork{}
	}
	w.Files += v.Files - w.at.Files
	w.Bytes += v.Bytes - w.at.Bytes
	w.at, w.Message = v, message
	switch {
	case v.Error != "":
		w.Failed++
		if len(w.Errors) < maxErrors {
			w.Errors = append(w.Errors, v.ID+": "+v.Error)
		}
	case v.Done:
		w.Done++
	default:
		return
	}
	w.at = VolumeWork{}
	if len(w.Volumes) < maxVolumes {
		w.Volumes = append(w.Volumes, v)
	}
}

// Clone gives a copy that a later Take does not change.
func (w *Tally) Clone() Work {
	c := w.Work
	c.Errors, c.Volumes = slices.Clone(w.Errors), slices.Clone(w.Volumes)
	return c
}
