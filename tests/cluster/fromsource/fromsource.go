// Package fromsource lets a test cluster be made where no container image can be pulled. It answers three questions:
// which image kind's nodes run (NodeImage), where a program of Kubernetes or a sidecar is (Program, ProgramImage), and
// what makes pods reach each other (PodRoutes). Where a registry answers, the first two are the public images and the
// third is nothing: then this package, and all below it, need not be read.
package fromsource
