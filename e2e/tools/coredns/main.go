// CoreDNS with only the plugins that cluster DNS and tests of Kubernetes need. The default build contains plugins of every cloud, which take
// minutes to build.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/hosts"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/ready"
)

func main() {
	// The order in which plugins handle a query.
	dnsserver.Directives = []string{"health", "ready", "errors", "log", "cache", "hosts", "kubernetes"}
	coremain.Run()
}
