package nodeapi

// When a directory that becomes a volume is held to its size.
const (
	EnforceNow   = "now"   // before a pod gets it
	EnforceLater = "later" // by `volume enforce`
	EnforceNever = "never"
)

// Directory is one of a node that may become a volume. Sizes are in bytes.
type Directory struct {
	Node    string `json:"node"`
	Pool    string `json:"pool"`
	Path    string `json:"path"`
	Exists  bool   `json:"exists"`
	Files   int64  `json:"files"`
	Bytes   int64  `json:"bytes"`
	Partial bool   `json:"partial,omitempty"` // it has more than was counted in the time
	// SameMount says that it can be renamed into the pool.
	SameMount         bool   `json:"sameMount"`
	FSType            string `json:"fsType,omitempty"`
	Enforceable       bool   `json:"enforceable"`
	EnforcementReason string `json:"enforcementReason,omitempty"` // why it is not
	MountInside       string `json:"mountInside,omitempty"`       // a path
	UsedAt            string `json:"usedAt,omitempty"`            // where it, or what is in it, is mounted
	// Problems are sentences, each of which refuses it, but for that it is in use: that can end.
	Problems []string `json:"problems,omitempty"`
}

// TakenDirectory is one that has become a volume.
type TakenDirectory struct {
	Node   string `json:"node"`
	ID     string `json:"id"`
	Pool   string `json:"pool"`
	Path   string `json:"path"` // where it was
	Bytes  int64  `json:"bytes"`
	Shared bool   `json:"shared,omitempty"`
	// Enforcing says that its files are being made to count, and Files how many do. Failed is why that does not go on.
	Enforcing bool   `json:"enforcing,omitempty"`
	Files     int64  `json:"files,omitempty"`
	Failed    string `json:"failed,omitempty"`
	// Enforcement is as of a volume; Reason says why it is none.
	Enforcement string `json:"enforcement"`
	Reason      string `json:"reason,omitempty"`
	Driver      string `json:"driver"`
	TopologyKey string `json:"topologyKey"`
}

// ReturnedDirectory is one that goes back to where it was.
type ReturnedDirectory struct {
	Node  string `json:"node"`
	ID    string `json:"id"`
	Path  string `json:"path,omitempty"` // "" where the node has no such volume
	Done  bool   `json:"done"`           // else its files are being taken out of the count: ask again
	Files int64  `json:"files,omitempty"`
}
