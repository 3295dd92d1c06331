package vm

import (
	"encoding/json"
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
		problems := w.judge(before)
		now := l.look(t)
		problems = slices.Concat(problems, w.judge(now), now.unsound())
		if len(problems) == 0 {
			now, problems = l.settle(t, now)
			problems = slices.Concat(problems, w.judge(now), now.unsound())
		}
		if len(problems) > 0 {
			for _, p := range problems {
				t.Errorf("after cut %d: %s", cut, p)
			}
			t.Log(l.machine.Console())
			must(t, l.machine.Kill())
			return
		}
		w.accept(now)
		if cut == cuts {
			must(t, l.machine.Kill())
			t.Logf("%d cuts, %d operations answered, %d cut short, %d volumes at the end",
				cuts, w.answered, w.interrupted, len(w.volumes))
			return
		}
		answers, delay := 1+random.IntN(40), time.Duration(random.IntN(30))*time.Millisecond
		w.work(t, l, answers)
		time.Sleep(delay) // so that the cut falls between answers too
		must(t, l.machine.Kill())
		w.drain(l)
		t.Logf("cut %d: %d operations answered so far, %d cut short", cut+1, w.answered, w.interrupted)
	}
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

// state is what the agent reports; State of src/driver/internal/powercuttest has the same fields.
type state struct {
	Volumes                             map[string]found
	Untracked, Prepared, Staging, Trash []string
	Limits                              map[uint64]int64
	Promised                            int64
}

type found struct {
	Bytes            int64
	QuotaID, Counted uint64
	Data, Marker     bool
}

func parseState(t *testing.T, text string) state {
	t.Helper()
	var s state
	must(t, json.Unmarshal([]byte(text), &s))
	return s
}
