// flannel with its VXLAN backend and addresses from Kubernetes. The original program needs modules of every cloud, some
// of which cannot be fetched. This one calls flannel's code in the same order.
//
//	flannel KUBECONFIG INTERFACE NETWORK_CONFIG SUBNET_FILE; the node's name is in NODE_NAME
package main

import (
	"context"
	"log"
	"math/big"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/flannel-io/flannel/pkg/backend"
	_ "github.com/flannel-io/flannel/pkg/backend/vxlan"
	"github.com/flannel-io/flannel/pkg/ip"
	"github.com/flannel-io/flannel/pkg/ipmatch"
	"github.com/flannel-io/flannel/pkg/subnet/kube"
	"github.com/flannel-io/flannel/pkg/trafficmngr/iptables"
)

// Interval in seconds at which flannel restores its rules, as in the original program.
const resync = 5

func main() {
	if len(os.Args) != 5 {
		log.Fatal("usage: flannel KUBECONFIG INTERFACE NETWORK_CONFIG SUBNET_FILE")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var running sync.WaitGroup
	if err := run(ctx, &running, os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil {
		log.Fatal(err)
	}
	running.Wait()
}

func run(ctx context.Context, running *sync.WaitGroup, kubeconfig, device, settings, file string) error {
	manager, err := kube.NewSubnetManager(ctx, "", kubeconfig, "flannel.alpha.coreos.com", settings, false)
	if err != nil {
		return err
	}
	config, err := manager.GetNetworkConfig(ctx)
	if err != nil {
		return err
	}
	families, err := ipmatch.GetIPFamily(config.EnableIPv4, config.EnableIPv6)
	if err != nil {
		return err
	}
	outside, err := ipmatch.LookupExtIface(device, "", "", families, ipmatch.PublicIPOpts{})
	if err != nil {
		return err
	}
	vxlan, err := backend.NewManager(ctx, manager, outside).GetBackend(config.BackendType)
	if err != nil {
		return err
	}
	network, err := vxlan.RegisterNetwork(ctx, running, config)
	if err != nil {
		return err
	}
	lease := network.Lease()
	rules := &iptables.IPTablesManager{}
	if err := rules.Init(ctx); err != nil {
		return err
	}
	// No state of an earlier run is left. flannel compares IPv6 numbers, so zero, and not nil, means none.
	before := ip.IP6Net{IP: (*ip.IP6)(new(big.Int))}
	err = rules.SetupAndEnsureMasqRules(ctx, config.Network, ip.IP4Net{}, ip.IP4Net{},
		config.IPv6Network, before, before, lease, resync, false)
	if err != nil {
		return err
	}
	rules.SetupAndEnsureForwardRules(ctx, config.Network, config.IPv6Network, resync)
	err = manager.HandleSubnetFile(file, config, true, lease.Subnet, lease.IPv6Subnet, network.MTU())
	if err != nil {
		return err
	}
	running.Add(1)
	go func() {
		network.Run(ctx)
		running.Done()
	}()
	return manager.CompleteLease(ctx, lease, running)
}
