// Every program of a node in one file, by the name under which it is called: they share most of their code.
package main

import (
	goflag "flag"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

var programs = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllers.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubectl": func() *cobra.Command {
		command := kubectl.NewDefaultKubectlCommand()
		pflag.CommandLine.AddGoFlagSet(goflag.CommandLine)
		return command
	},
	"kubelet": kubelet.NewKubeletCommand,
}

func main() {
	rand.Seed(time.Now().UnixNano())
	name := filepath.Base(os.Args[0])
	program, found := programs[name]
	if !found {
		fmt.Fprintf(os.Stderr, "%s is none of the programs that are in here\n", name)
		os.Exit(2)
	}
	command := program()
	pflag.CommandLine.SetNormalizeFunc(cliflag.WordSepNormalizeFunc)
	logs.InitLogs()
	defer logs.FlushLogs()
	if err := command.Execute(); err != nil {
		os.Exit(1)
	}
}
