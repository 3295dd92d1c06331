package csi

import "time"

// SetRelayWait says for how long requests wait for data, so that tests do not depend on a busy machine.
func (c *Controller) SetRelayWait(d time.Duration) { c.relays.wait = d }
