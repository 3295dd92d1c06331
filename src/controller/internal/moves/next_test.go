package moves

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestNext: each phase, with what may be found in it.
func TestNext(t *testing.T) {
	const m = "m"
	here := side{known: true, there: true, move: m}
	none := side{known: true}
	part := side{known: true, there: true, filling: true, move: m}
	away := side{why: "it is away"}
	gone := side{why: "it is gone", gone: true}
	other := side{known: true, there: true, move: "other"}
	used := side{known: true, there: true, published: true, move: m}
	ready := func(source, target side) facts {
		return facts{pv: atSource, policy: "Retain", claim: bound, source: source, target: target}
	}
	swapped := func(is where, claim bond, source, target side) facts {
		return facts{pv: is, policy: "Retain", claim: claim, source: source, target: target}
	}
	with := func(f facts, change func(*facts)) facts { change(&f); return f }
	deletes := func(f facts) facts { f.policy = "Delete"; return f }
	to := func(in Phase) action { return action{do: advance, to: in} }
	changed, ending := func(f *facts) { f.changed = "x" }, func(f *facts) { f.ending = true }
	for name, test := range map[string]struct {
		in   Phase
		f    facts
		want action
	}{
		"policy":            {Retain, deletes(ready(here, none)), action{do: retain}},
		"policy is so":      {Retain, ready(none, none), to(Leave)},
		"no mark":           {Leave, ready(side{known: true, there: true}, none), action{do: mark}},
		"another's mark":    {Leave, ready(other, none), action{do: mark}}, // which the node refuses
		"a pod has it":      {Leave, ready(used, none), action{do: wait}},
		"source away":       {Leave, ready(away, none), action{do: wait}},
		"no pod has it":     {Leave, ready(here, none), to(Copy)},
		"nothing copied":    {Copy, ready(here, none), action{do: copyData}},
		"some copied":       {Copy, ready(here, part), action{do: copyData}},
		"all copied":        {Copy, ready(here, here), to(Swap)},
		"target away":       {Copy, ready(here, away), action{do: wait}},
		"mark is gone":      {Copy, ready(side{known: true, there: true}, part), to(Abort)},
		"another's copy":    {Copy, ready(here, other), to(Abort)},
		"pod has it again":  {Copy, ready(used, part), action{do: wait}},
		"claim is gone":     {Copy, with(ready(here, part), func(f *facts) { f.claim = unclaimed }), to(Abort)},
		"PV is gone":        {Copy, with(ready(here, part), func(f *facts) { f.pv = nowhere }), to(Abort)},
		"PV is deleted":     {Leave, with(ready(here, part), ending), to(Abort)},
		"PV has changed":    {Copy, with(ready(here, here), changed), to(Abort)},
		"only the copy":     {Copy, ready(gone, here), to(Swap)},
		"disk lost, copied": {Copy, ready(none, here), to(Swap)},
		"only a part":       {Copy, ready(gone, part), action{do: wait}},
		"disk lost, part":   {Copy, ready(none, part), to(Abort)},
		"swap":              {Swap, ready(here, here), action{do: removePV}},
		"swap: only a copy": {Swap, ready(gone, here), action{do: removePV}},
		"swap: disk lost":   {Swap, ready(none, here), action{do: removePV}},
		"swap: lost, part":  {Swap, ready(none, part), to(Copy)},
		"swap: policy":      {Swap, deletes(ready(here, here)), action{do: retain}},
		"swap: not whole":   {Swap, ready(here, part), to(Copy)},
		"swap: a pod":       {Swap, ready(used, here), to(Copy)},
		"swap: changed":     {Swap, with(ready(here, here), changed), to(Abort)},
		"swap: ending":      {Swap, with(ready(here, here), ending), action{do: removePV}},
		"swap: no PV":       {Swap, swapped(nowhere, lost, here, here), action{do: makePV}},
		"swap: source away": {Swap, swapped(nowhere, lost, away, here), action{do: makePV}},
		"swap: target away": {Swap, swapped(nowhere, lost, here, away), action{do: wait}},
		"swap: target gone": {Swap, swapped(nowhere, lost, here, gone), action{do: makeOldPV}},
		"swap: copy lost":   {Swap, swapped(nowhere, lost, here, none), action{do: makeOldPV}},
		"swap: both gone":   {Swap, swapped(nowhere, lost, gone, gone), action{do: wait}},
		"swap: forged":      {Swap, swapped(nowhere, lost, here, other), action{do: wait}},
		"swap: another PV":  {Swap, swapped(foreign, lost, here, here), action{do: wait}},
		"swapped, Lost":     {Swap, swapped(atTarget, lost, here, here), action{do: touch}},
		"swapped, Bound":    {Swap, swapped(atTarget, bound, here, here), to(Discard)},
		"swapped, no claim": {
			Swap, swapped(atTarget, unclaimed, here, here),
			action{do: advance, to: Discard, keeps: true},
		},
		"discard":          {Discard, swapped(atTarget, bound, here, here), action{do: discard}},
		"discard: away":    {Discard, swapped(atTarget, bound, away, here), action{do: wait}},
		"discard: gone":    {Discard, swapped(atTarget, bound, gone, here), to(Restore)},
		"discarded":        {Discard, swapped(atTarget, bound, none, here), to(Restore)},
		"discard: unsure":  {Discard, swapped(atTarget, bound, here, away), action{do: wait}},
		"discard: no copy": {Discard, swapped(atTarget, bound, here, none), action{do: wait}},
		"discard: b gone":  {Discard, swapped(atTarget, bound, here, gone), to(Restore)},
		"kept":             {Restore, deletes(swapped(atTarget, bound, here, gone)), action{do: finish}},
		"discard: another": {Discard, swapped(atTarget, bound, other, here), to(Restore)},
		"restore":          {Restore, swapped(atTarget, bound, none, here), action{do: restore}},
		"restored": {
			Restore, deletes(swapped(atTarget, bound, none, here)),
			action{do: finish},
		},
		"deleted since":      {Restore, swapped(nowhere, unclaimed, none, none), action{do: finish}},
		"abort: marked":      {Abort, ready(here, part), action{do: stay}},
		"abort: policy":      {Abort, ready(none, part), action{do: restore}},
		"abort: copy":        {Abort, deletes(ready(none, part)), action{do: removeCopy}},
		"abort: no copy":     {Abort, deletes(ready(none, none)), action{do: finish}},
		"abort: another's":   {Abort, deletes(ready(none, other)), action{do: finish}},
		"abort: away":        {Abort, deletes(ready(none, away)), action{do: wait}},
		"abort: last copy":   {Abort, deletes(ready(gone, here)), action{do: finish}},
		"abort: disk lost":   {Abort, deletes(ready(none, here)), action{do: finish}},
		"abort: gone":        {Abort, deletes(ready(gone, gone)), action{do: finish}},
		"abort: at target":   {Abort, swapped(atTarget, bound, none, here), action{do: wait}},
		"of another version": {"later", ready(here, none), action{do: wait}},
	} {
		e := entry{Move: m, Phase: test.in, Policy: corev1.PersistentVolumeReclaimDelete}
		got := next(e, test.f)
		got.says = ""
		if got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}
