package purge

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// From ioprio_set(2) and include/uapi/linux/ioprio.h.
const (
	ofThread     = 1       // IOPRIO_WHO_PROCESS, with 0 for the calling thread
	idlePriority = 3 << 13 // IOPRIO_CLASS_IDLE
)

// Idle runs do with the lowest I/O priority, which few of Linux's I/O schedulers heed; its worth was not measured.
func Idle(do func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		// Where it is refused, removal is only less polite.
		_, _, _ = unix.Syscall(unix.SYS_IOPRIO_SET, ofThread, 0, idlePriority)
		do()
	}()
	<-done
}
