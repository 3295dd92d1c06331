package vm

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"
)

// cutsVariable says how often each filesystem's power is cut; `make test-power` sets it.
const cutsVariable = "HPP_POWER_CUTS"

// cutsToDo is 1 where nobody says otherwise. None at all would test nothing.
func cutsToDo(text string) (int, error) {
	if text == "" {
		return 1, nil
	}
	cuts, err := strconv.Atoi(text)
	if err == nil && cuts < 1 {
		err = errors.New("at least one cut is needed")
	}
	if err != nil {
		return 0, fmt.Errorf("%s=%s: %w", cutsVariable, text, err)
	}
	return cuts, nil
}

// TestPowerCuts sends the built driver in a VM requests, cuts the VM's power at a random moment, boots the same disk
// again and compares what is there with what the driver had answered; over and over, the filesystems beside each other.
func TestPowerCuts(t *testing.T) {
	cuts, err := cutsToDo(os.Getenv(cutsVariable))
	must(t, err)
	kernel := fetch(t)
	programs := folder(t, "programs")
	driver, agent := filepath.Join(programs, "driver"), filepath.Join(programs, "agent")
	must(t, BuildDriver(inTime(t), driver))
	must(t, BuildTest(inTime(t), agent, "..", "./src/driver/internal/powercuttest"))
	for _, f := range []struct {
		kind             string
		modules, options []string // options of mkfs
	}{
		{kind: "xfs", modules: []string{"ext4", "xfs"}},
		{kind: "ext4", modules: []string{"ext4", "quota_v2"}, options: []string{"-O", "quota,project"}},
		{kind: "btrfs", modules: []string{"ext4", "btrfs"}}, // the driver switches simple quota on
	} {
		t.Run(f.kind, func(t *testing.T) {
			t.Parallel() // a VM computes on one core
			dir := folder(t, "power-"+f.kind)
			disks := map[string]string{"pool": filepath.Join(dir, "pool"), "state": filepath.Join(dir, "state")}
			must(t, Image(inTime(t), disks["pool"], 1<<30, "mkfs."+f.kind, f.options...))
			must(t, Image(inTime(t), disks["state"], 64<<20, "mkfs.ext4"))
			cutAndCut(t, cuts, Config{
				Kernel: kernel, Modules: f.modules, Disks: disks, Dir: dir,
				Files:   map[string]string{"test": agent, "driver": driver},
				Command: []string{"/test", "-test.run", "^TestServe$", f.kind},
			})
		})
	}
}

// cutAndCut is the life of one disk.
func cutAndCut(t *testing.T, cuts int, c Config) {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	w := newWorld(random)
	keepIfFailed(t, c)
	for cut := range cuts + 1 {
		l, before := connect(t, c)
		now, problems := w.compare(t, l, w.judge(before))
		w.accept(now)
		there := len(w.volumes)
		if cut == cuts && len(problems) == 0 {
			w.deleteAll(t, l)
			_, problems = w.compare(t, l, nil)
		}
		for _, p := range problems {
			t.Errorf("after cut %d: %s", cut, p)
		}
		if len(problems) > 0 {
			t.Log(l.machine.Console())
		}
		if len(problems) > 0 || cut == cuts {
			must(t, l.machine.Kill())
			t.Logf("%d cuts, %d operations answered, %d cut short, %d half copies, %d volumes and snapshots at the end",
				cut, w.answered, w.interrupted, w.halves, there)
			return
		}
		answers, delay := 1+random.IntN(40), time.Duration(random.IntN(30))*time.Millisecond
		w.work(t, l, answers)
		time.Sleep(delay) // so that the cut falls between answers too
		must(t, l.machine.Kill())
		w.drain(l)
		t.Logf("cut %d: %d operations answered so far, %d cut short: %v", cut+1, w.answered, w.interrupted, w.pending)
	}
}

// compare lists what is wrong, beside what is known to be, with what is on the disk once the driver has put that in
// order.
func (w *world) compare(t *testing.T, l *link, problems []string) (now state, all []string) {
	t.Helper()
	now = l.look(t)
	if all = slices.Concat(problems, w.judge(now), now.unsound()); len(all) > 0 {
		return now, all
	}
	now, all = l.settle(t, now)
	return now, slices.Concat(all, w.judge(now), now.unsound())
}

// keepIfFailed puts the disk's last state and what the driver said where CI picks it up, however the test fails.
func keepIfFailed(t *testing.T, c Config) {
	t.Helper()
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		folder := filepath.Join("..", "..", "artifacts", "power", filepath.Base(t.Name()))
		must(t, os.MkdirAll(folder, 0o755))
		for _, name := range []string{"pool", "console"} {
			data, err := os.ReadFile(filepath.Join(c.Dir, name))
			if errors.Is(err, fs.ErrNotExist) {
				continue // it had not come so far
			}
			must(t, err)
			must(t, os.WriteFile(filepath.Join(folder, name), data, 0o644))
		}
	})
}
