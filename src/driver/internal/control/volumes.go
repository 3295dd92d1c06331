package control

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/hostpath-provisioner/hostpath-provisioner/src/api/names"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/ledger"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/pool"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/store"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/driver/internal/volume"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/logging"
	"github.com/hostpath-provisioner/hostpath-provisioner/src/internal/nodeapi"
)

// longestRequest bounds the body of a request, in bytes.
const longestRequest = 1 << 20

func body[T any](w http.ResponseWriter, r *http.Request) (wanted T, err error) {
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, longestRequest))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&wanted); err != nil {
		return wanted, fmt.Errorf("%w: %w", errBadRequest, err)
	}
	return wanted, nil
}

// volumes answers with those of all nodes, or of the driver's own.
func (s *Server) volumes(w http.ResponseWriter, r *http.Request) error {
	all := []nodeapi.VolumeStatus{}
	var err error
	if s.Overview != nil {
		all, err = s.Overview.Volumes(r.Context())
	} else {
		err = s.Volumes.Each(r.Context(), func(v nodeapi.VolumeStatus) error {
			if v.Node = s.Node; v.Ephemeral {
				v.State = "inline"
			}
			all = append(all, v)
			return nil
		})
	}
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b nodeapi.VolumeStatus) int {
		return cmp.Or(strings.Compare(a.Node, b.Node), strings.Compare(a.Pool, b.Pool), strings.Compare(a.ID, b.ID))
	})
	s.reply(w, http.StatusOK, all)
	return nil
}

// enforce works on one volume after another until the client leaves, and sends a line of progress now and then.
func (s *Server) enforce(w http.ResponseWriter, r *http.Request) error {
	wanted, err := body[Selection](w, r)
	if err == nil {
		wanted.IDs, err = s.selected(wanted)
	}
	if err != nil {
		return err
	}
	stream := http.NewResponseController(w)
	_ = stream.SetReadDeadline(time.Time{}) // it would end the request, which can take hours
	w.Header().Set("Content-Type", "application/jsonl")
	lines := json.NewEncoder(w)
	send := func(p Progress) {
		if err := lines.Encode(p); err == nil { // a client that has gone ends the request's context
			_ = stream.Flush()
		}
	}
	for _, id := range wanted.IDs {
		send(s.enforceOne(r.Context(), wanted, id, send))
		if r.Context().Err() != nil {
			return nil //nolint:nilerr // nobody reads an answer
		}
	}
	send(Progress{Done: true})
	return nil
}

// enforceOne works on one volume and gives the last line about it.
func (s *Server) enforceOne(ctx context.Context, wanted Selection, id string, send func(Progress)) Progress {
	p := Progress{ID: id}
	err := s.inPool(wanted.Pool, id)
	if err == nil {
		err = s.Volumes.Enforce(ctx, id, wanted.Inodes, func(files int64) {
			p.Files = files
			send(p)
		})
	}
	if p.Done = err == nil; !p.Done {
		s.Log.WarnContext(ctx, "cannot enforce the size of a volume", logging.KeyID, id, logging.KeyError, err)
		p.Error = err.Error()
	}
	return p
}

// selected gives the ids of a selection, without repetition.
func (s *Server) selected(wanted Selection) (ids []string, err error) {
	if wanted.Pool == "" || len(wanted.IDs) > 0 {
		for _, id := range wanted.IDs {
			if !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
		return ids, nil
	}
	all := s.Pools.Status()
	i := slices.IndexFunc(all, func(p nodeapi.PoolStatus) bool { return p.Name == wanted.Pool })
	switch {
	case i < 0:
		return nil, fmt.Errorf("%w: %s", pool.ErrUnknown, wanted.Pool)
	case !all[i].Served():
		return nil, fmt.Errorf("%w: pool %s: %s", pool.ErrAbsent, wanted.Pool, all[i].Message)
	}
	s.Pools.Each(func(in, id string, v ledger.Volume) {
		if in == wanted.Pool && v.QuotaID != 0 && !v.Counted {
			ids = append(ids, id)
		}
	})
	slices.Sort(ids)
	return ids, nil
}

// inPool refuses a volume of another pool than the one that is named.
func (s *Server) inPool(name, id string) error {
	if in, _, ok := s.Pools.Find(id); ok && name != "" && in != name {
		return fmt.Errorf("%w: volume %s is in pool %s, not in %s", volume.ErrInvalid, id, in, name)
	}
	return nil
}

func (s *Server) discard(w http.ResponseWriter, r *http.Request) error {
	wanted, err := body[disposal](w, r)
	if err == nil {
		err = s.Volumes.Discard(r.Context(), r.PathValue("name"), wanted.PVOn)
	}
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

// adopt answers with a PersistentVolume as YAML.
func (s *Server) adopt(w http.ResponseWriter, r *http.Request) error {
	var record store.Record
	wanted, err := body[Adoption](w, r)
	if err == nil {
		record, err = s.Volumes.Adopt(r.Context(), r.PathValue("name"), wanted.Bytes)
	}
	if err != nil {
		return err
	}
	manifest, err := yaml.Marshal(s.persistentVolume(record, wanted.StorageClass))
	if err == nil {
		w.Header().Set("Content-Type", "application/yaml")
		_, err = w.Write(manifest)
	}
	if err != nil {
		s.Log.DebugContext(r.Context(), "a control client has gone", logging.KeyError, err)
	}
	return nil
}

func (s *Server) shared(name string) bool {
	return slices.ContainsFunc(s.Pools.Status(),
		func(is nodeapi.PoolStatus) bool { return is.Name == name && is.Shared })
}

// object is a part of an object of the Kubernetes API, with the API's names.
type object = map[string]any

// persistentVolume is the one for a volume that has none. Its claim has no uid, so a new claim of that name gets it.
func (s *Server) persistentVolume(r store.Record, class string) object {
	spec := object{
		"accessModes":                   []string{"ReadWriteOnce"},
		"capacity":                      object{"storage": resource.NewQuantity(r.Bytes, resource.BinarySI).String()},
		"persistentVolumeReclaimPolicy": "Retain",
		"storageClassName":              class,
		"csi": object{
			"driver":           s.Driver,
			"volumeHandle":     r.ID,
			"volumeAttributes": object{names.StoragePoolParameter: r.Pool},
		},
	}
	if !s.shared(r.Pool) {
		spec["nodeAffinity"] = object{"required": object{"nodeSelectorTerms": []object{{"matchExpressions": []object{
			{"key": s.TopologyKey, "operator": "In", "values": []string{s.Node}},
		}}}}}
	}
	if r.Claim.Name != "" {
		spec["claimRef"] = object{
			"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": r.Claim.Namespace, "name": r.Claim.Name,
		}
	}
	metadata := object{"name": r.ID, "annotations": object{names.ProvisionedBy: s.Driver}}
	return object{"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec}
}
