package app

import (
	"context"
	"errors"
)

func (s *session) burst(context.Context) error { return errors.New("not yet") }
