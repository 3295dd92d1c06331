// Package explain says why a claim, a pod or a PersistentVolume is as it is, and what to type next. It is pure: ordered
// chains of cases over what was read.
package explain

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/facts"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/kubectl-hpp/internal/say"
)

// unknown is what is said where no case applies.
func unknown(f facts.Facts, what string, events []corev1.Event) say.Answer {
	const most = 5
	answer := say.Answer{Reason: "Unknown", Message: what + "; nothing wrong is known. Its events:"}
	for _, e := range events[max(0, len(events)-most):] {
		answer.Rows = append(answer.Rows, [2]string{e.Reason, strings.TrimSpace(e.Message)})
	}
	if len(events) == 0 {
		answer.Message = what + "; nothing wrong is known, and there are no events of it."
	}
	for _, right := range f.Missing {
		answer.Rows = append(answer.Rows, [2]string{"not read", right})
	}
	return answer
}
