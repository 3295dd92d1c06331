package sanity_test

// Reasons for skipping.
const (
	noAttach           = "a directory needs no attaching: CSIDriver.attachRequired is false"
	noStaging          = "a bind mount needs no staging: volumes are published in one step"
	noSnapshots        = "snapshots are not part of this version; CreateVolume refuses a source (csi/request.go, tested there)"
	noClones           = "clones are not part of this version; CreateVolume refuses a source (csi/request.go, tested there)"
	noGroups           = "group snapshots are not part of this version"
	noExpansion        = "only the cluster's controller advertises the controller's EXPAND_VOLUME, on a socket of its own (growth, csi/expand_test.go)"
	noModify           = "ControllerModifyVolume goes to one socket with only an id, which one driver per node cannot answer"
	noControllerHealth = "health is answered by the node service, where the directory is"
	disabled           = "disabled by csi-sanity itself (XIt) for drivers that page by index; TestPagingWhileVolumesChange does it"
)

// skips are the specs that csi-sanity skips, each with the reason. A spec that
// is skipped without being listed fails the test, as does one listed that runs.
func skips() map[string]string {
	return map[string]string{
		"Controller Service [Controller Server] ControllerPublishVolume should fail when no node id is provided":                                 noAttach,
		"Controller Service [Controller Server] ControllerPublishVolume should fail when no volume capability is provided":                       noAttach,
		"Controller Service [Controller Server] ControllerPublishVolume should fail when no volume id is provided":                               noAttach,
		"Controller Service [Controller Server] ControllerPublishVolume should fail when publishing more volumes than the node max attach limit": noAttach,
		"Controller Service [Controller Server] ControllerPublishVolume should fail when the node does not exist":                                noAttach,
		"Controller Service [Controller Server] ControllerPublishVolume should fail when the volume does not exist":                              noAttach,
		"Controller Service [Controller Server] ControllerPublishVolume should fail when the volume is already published but is incompatible":    noAttach,
		"Controller Service [Controller Server] ControllerUnpublishVolume should fail when no volume id is provided":                             noAttach,
		"Controller Service [Controller Server] volume lifecycle should be idempotent":                                                           noAttach,
		"Controller Service [Controller Server] volume lifecycle should work":                                                                    noAttach,

		"Node Service NodeStageVolume should fail when no staging target path is provided":   noStaging,
		"Node Service NodeStageVolume should fail when no volume capability is provided":     noStaging,
		"Node Service NodeStageVolume should fail when no volume id is provided":             noStaging,
		"Node Service NodeUnstageVolume should fail when no staging target path is provided": noStaging,
		"Node Service NodeUnstageVolume should fail when no volume id is provided":           noStaging,

		"Controller Service [Controller Server] CreateVolume should create volume from an existing source snapshot":                                     noSnapshots,
		"Controller Service [Controller Server] CreateVolume should fail when the volume source snapshot is not found":                                  noSnapshots,
		"CreateSnapshot [Controller Server] should fail when no name is provided":                                                                       noSnapshots,
		"CreateSnapshot [Controller Server] should fail when no source volume id is provided":                                                           noSnapshots,
		"CreateSnapshot [Controller Server] should fail when requesting to create a snapshot with already existing name and different source volume ID": noSnapshots,
		"CreateSnapshot [Controller Server] should succeed when creating a snapshot with accessibility requirements":                                    noSnapshots,
		"CreateSnapshot [Controller Server] should succeed when creating snapshot with maximum-length name":                                             noSnapshots,
		"CreateSnapshot [Controller Server] should succeed when requesting to create a snapshot with already existing name and same source volume ID":   noSnapshots,
		"DeleteSnapshot [Controller Server] should fail when no snapshot id is provided":                                                                noSnapshots,
		"DeleteSnapshot [Controller Server] should return appropriate values (no optional values added)":                                                noSnapshots,
		"DeleteSnapshot [Controller Server] should succeed when an invalid snapshot id is used":                                                         noSnapshots,
		"GetSnapshot [Controller Server] should return an error":                                                                                        noSnapshots,
		"GetSnapshot [Controller Server] should return an error when the specified snapshot id does not exist":                                          noSnapshots,
		"GetSnapshot [Controller Server] should return snapshot that match the specified snapshot id":                                                   noSnapshots,
		"ListSnapshots [Controller Server] check the presence of new snapshots in the snapshot list":                                                    noSnapshots,
		"ListSnapshots [Controller Server] should return appropriate values (no optional values added)":                                                 noSnapshots,
		"ListSnapshots [Controller Server] should return empty when the specified snapshot id does not exist":                                           noSnapshots,
		"ListSnapshots [Controller Server] should return empty when the specified source volume id does not exist":                                      noSnapshots,
		"ListSnapshots [Controller Server] should return next token when a limited number of entries are requested":                                     noSnapshots,
		"ListSnapshots [Controller Server] should return snapshots that match the specified snapshot id":                                                noSnapshots,
		"ListSnapshots [Controller Server] should return snapshots that match the specified source volume id":                                           noSnapshots,

		"Controller Service [Controller Server] CreateVolume should create volume from an existing source volume":    noClones,
		"Controller Service [Controller Server] CreateVolume should fail when the volume source volume is not found": noClones,

		"GroupController Service [GroupController Server] GroupControllerGetCapabilities should return appropriate capabilities":                    noGroups,
		"GroupController Service [GroupController VolumeGroupSnapshots] CreateVolumeGroupSnapshot should fail when no name is provided":             noGroups,
		"GroupController Service [GroupController VolumeGroupSnapshots] DeleteVolumeGroupSnapshot should fail when no volume id is provided":        noGroups,
		"GroupController Service [GroupController VolumeGroupSnapshots] DeleteVolumeGroupSnapshot should succeed when an invalid volume id is used": noGroups,
		"GroupController Service [GroupController VolumeGroupSnapshots] GetVolumeGroupSnapshot should fail when an invalid volume id is used":       noGroups,
		"GroupController Service [GroupController VolumeGroupSnapshots] GetVolumeGroupSnapshot should fail when no volume id is provided":           noGroups,

		"ExpandVolume [Controller Server] should fail if no capacity range is given": noExpansion,
		"ExpandVolume [Controller Server] should fail if no volume id is given":      noExpansion,
		"ExpandVolume [Controller Server] should work":                               noExpansion,

		"Controller Service [Controller Server] CreateVolume should create volume with a volume attribute class":                                                      noModify,
		"Controller Service [Controller Server] CreateVolume should not create volume with an invalid volume attribute class":                                         noModify,
		"ModifyVolume [Controller Server] should fail if no volume id is given":                                                                                       noModify,
		"ModifyVolume [Controller Server] should fail if specified mutable parameters are not supported by the volume":                                                noModify,
		"ModifyVolume [Controller Server] should fail if volume does not exist":                                                                                       noModify,
		"ModifyVolume [Controller Server] should fail to modify a volume created with a volume attribute class if new mutable parameters are not supported by volume": noModify,
		"ModifyVolume [Controller Server] should modify a volume created with a volume attribute class":                                                               noModify,
		"ModifyVolume [Controller Server] should modify a volume created without a volume attribute class":                                                            noModify,

		"ControllerGetVolumeHealth [Controller Server] should fail when no volume id is provided": noControllerHealth,
		"ControllerGetVolumeHealth [Controller Server] should return health for a valid volume":   noControllerHealth,
		"ControllerListVolumeHealth [Controller Server] should return appropriate response":       noControllerHealth,

		"Controller Service [Controller Server] ListVolumes pagination should detect volumes added between pages and accept tokens when the last volume from a page is deleted": disabled,
	}
}
