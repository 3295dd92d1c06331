package nodeapi

import "time"

// Move is a move of a volume to another node, under way or planned. Sizes are in bytes.
type Move struct {
	PV    string `json:"pv"`
	Claim string `json:"claim"` // namespace/name
	From  string `json:"from"`
	To    string `json:"to"`
	Pool  string `json:"pool"`
	// Phase is "" of one that is not under way.
	Phase string `json:"phase,omitempty"`
	// Message is what it waits for, or how far it is.
	Message string    `json:"message,omitempty"`
	Started time.Time `json:"started,omitzero"`
	Bytes   int64     `json:"bytes"`
	Used    int64     `json:"used"` // what there is to copy
	Copied  int64     `json:"copied"`
	// Room is the largest new volume on the other node, of one that is planned.
	Room      int64    `json:"room,omitempty"`
	Snapshots int64    `json:"snapshots,omitempty"` // that stay behind
	Published bool     `json:"published,omitempty"` // a pod has it on the node that it leaves
	Problems  []string `json:"problems,omitempty"`  // why one that is planned is refused
}
