package store

import "io/fs"

// POSIXMode are permission bits with setuid, setgid and sticky as chmod(1) writes them.
func POSIXMode(mode fs.FileMode) uint32 {
	bits := uint32(mode.Perm())
	for m, bit := range special() {
		if mode&m != 0 {
			bits |= bit
		}
	}
	return bits
}

// FileMode is the reverse of POSIXMode.
func FileMode(bits uint32) fs.FileMode {
	mode := fs.FileMode(bits & 0o777)
	for m, bit := range special() {
		if bits&bit != 0 {
			mode |= m
		}
	}
	return mode
}

func special() map[fs.FileMode]uint32 {
	return map[fs.FileMode]uint32{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000}
}
