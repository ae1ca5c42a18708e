#compdef cdigen

# Made by 'make generated' of the commands' own parsers, with https://github.com/tqdm/shtab: not to be edited.


_shtab_cdigen_commands() {
  local _commands=(
    config:'Check the configuration alone.'
    configure:'Set in a container runtime'"'"'s own configuration what CDI needs.'
    diff:'Compare the specs on disk with what this host would give now.'
    docker-args:'Print the arguments of '"'"'docker run'"'"' that give a container devices.'
    doctor:'Find what keeps containers from the devices, and what fixes it.'
    extender:'Let the scheduler share GPUs by memory, as its extender.'
    generate:'Print or write the CDI specs of this host.'
    health:'Show which devices can be used, and why others cannot.'
    inspect:'Show what was looked for on this host, and what was found.'
    install-service:'Put units, hook, man pages and completions of an installed wheel onto this host.'
    kubelet:'Offer this host'"'"'s devices to the kubelet, as its device plugins.'
    list:'List the devices that a container runtime finds.'
    nri:'Run as an NRI plugin, which gives containers the devices that they ask for.'
    prune:'Remove the driver views that no spec and no container uses.'
    resolve:'Show which devices a container would get from the NRI plugin, and why.'
    run:'Run as a daemon that keeps the specs true.'
    status:'Show how the daemon and the host stand.'
    topology:'Show how the devices of this host are linked.'
    validate:'Check spec files as the runtimes'"'"' loaders do.'
    withdraw:'Remove the specs that cdigen wrote, on purpose.'
  )
  _describe 'cdigen commands' _commands
}

_shtab_cdigen_options=(
  "(- : *)"{-h,--help}"[show help]"
  "(- : *)"{-V,--version}"[show the version]"
)

# guard to ensure default positional specs are added only once per session
_shtab_cdigen_defaults_added=0

_shtab_cdigen_config_options=(
  "(- : *)"{-h,--help}"[show this help message and exit]"
  "--config=[the configuration (default\: \/etc\/cdigen\/config.yaml)]:FILE:_files"
  "--root=[pretend that the folder DIR is the host]:DIR:_files -/"
  "--json[print one JSON document and nothing else on stdout]"
  {-v,--verbose}"[say more on stderr]"
  {-q,--quiet}"[say nothing but errors on stderr]"
  ":check every key\: exit 0 if all are right, 2 if not, 5 if the file cannot be read:(check)"
)

# guard to ensure default positional specs are added only once per session
_shtab_cdigen_config_defaults_added=0

_shtab_cdigen_configure_options=(
  "(- : *)"{-h,--help}"[show this help message and exit]"
  "--dry-run[change nothing, print what would be as a diff]"
  "--undo[restore the files as they were before this command changed them]"
  "--nri[switch NRI on as well (containerd, crio)]"
  "--nri-required[as --nri, and no container starts while the plugin is away (containerd 2.2, CRI-O 1.34)]"
  "--restart[restart the runtime if anything was changed]"
  "*--spec-dir=[a spec directory that the runtime shall read, as the host names it\; repeat it, the last has priority (default\: those of the configuration)]:DIR:_files -/"
  "--config=[the configuration (default\: \/etc\/cdigen\/config.yaml)]:FILE:_files"
  "--root=[pretend that the folder DIR is the host]:DIR:_files -/"
  "--json[print one JSON document and nothing else on stdout]"
  {-v,--verbose}"[say more on stderr]"
  {-q,--quiet}"[say nothing but errors on stderr]"
  ":podman, docker, containerd, crio:(podman docker containerd crio)"
)

# guard to ensure default positional specs are added only once per session
_shtab_cdigen_configure_defaults_added=0

_shtab_cdigen_diff_options=(
  "(- : *)"{-h,--help}"[show this help message and exit]"
  "*--kind=[only this kind, such as nvidia.com\/gpu]:KIND:_cdigen_kinds"
  "*--profile=[only this profile of the configuration]:NAME:"
  "*--naming=[name devices by index, uuid, type-index, pci, minor, card, or as a vendor of another package has it (repeat it\; default\: the vendor\'s own)]:HOW:(index uuid type-index pci minor card)"
  "*--target=[make it fit a runtime, such as podman-4.3 or containerd-1.7.24\; without a patch level the oldest of the series is meant\; repeat it, the strictest counts]:RUNTIME:(apptainer-1.5 buildkit-0.20 buildkit-0.21 buildkit-0.28 containerd-1.7 containerd-2.0 containerd-2.1 containerd-2.2 cri-o-1.24 cri-o-1.25 cri-o-1.26 cri-o-1.27 cri-o-1.28 cri-o-1.29 cri-o-1.30 cri-o-1.31 cri-o-1.33 cri-o-1.35 docker-25.0 docker-27.5 docker-28.1 docker-29.7 nerdctl-2.1 podman-4.1 podman-4.3 podman-4.4 podman-4.5 podman-4.7 podman-4.8 podman-5.1 podman-5.2 podman-5.5 podman-6.0)"
  "--layout=[how the driver\'s files reach containers (default\: the profile\'s, which is auto)]:layout:(auto files view hwcaps)"
  "--hook=[what runs when a container starts (default\: the profile\'s, which is auto)]:hook:(auto none cdigen nvidia)"
  "--container-driver-root=[containers get the driver\'s files below DIR]:DIR:_files -/"
  "*--spec-dir=[a spec directory instead of the default ones\; repeat it, the last has priority]:DIR:_files -/"
  "--config=[the configuration (default\: \/etc\/cdigen\/config.yaml)]:FILE:_files"
  "--root=[pretend that the folder DIR is the host]:DIR:_files -/"
  "*--vendor=[only this vendor\: nvidia, amd, intel, or one that another package adds]:NAME:(nvidia amd intel)"
  "--driver-root=[the driver\'s files lie below DIR (a driver container)]:DIR:_files -/"
  "--dev-root=[the device nodes lie below DIR]:DIR:_files -/"
  "*--library-search-path=[look for libraries only here]:DIR:_files -/"
  "*--binary-search-path=[look for programs only here]:DIR:_files -/"
  "*--config-search-path=[look for data files only here]:DIR:_files -/"
  "--mode=[what the host is taken for (default\: auto)]:mode:(auto gpu wsl csv management)"
  "--nvml=[whether NVML is asked for what \/proc and \/sys lack]:auto|off|PATH:(auto off)"
  "--strict[fail if any requested vendor has nothing or is not complete]"
  "--json[print one JSON document and nothing else on stdout]"
  {-v,--verbose}"[say more on stderr]"
  {-q,--quiet}"[say nothing but errors on stderr]"
)

# guard to ensure default positional specs are added only once per session
_shtab_cdigen_diff_defaults_added=0

_shtab_cdigen_docker_args_options=(
  "(- : *)"{-h,--help}"[show this help message and exit]"
  "--form=[CDI names, or what engines without CDI take\: nodes, groups and a volume (default\: cdi)]:form:(cdi classic)"
  "--config=[the configuration (default\: \/etc\/cdigen\/config.yaml)]:FILE:_files"
  "--root=[pretend that the folder DIR is the host]:DIR:_files -/"
  "*--vendor=[only this vendor\: nvidia, amd, intel, or one that another package adds]:NAME:(nvidia amd intel)"
  "--driver-root=[the driver\'s files lie below DIR (a driver container)]:DIR:_files -/"
  "--dev-root=[the device nodes lie below DIR]:DIR:_files -/"
  "*--library-search-path=[look for libraries only here]:DIR:_files -/"
  "*--binary-search-path=[look for programs only here]:DIR:_files -/"
  "*--config-search-path=[look for data files only here]:DIR:_files -/"
  "--mode=[what the host is taken for (default\: auto)]:mode:(auto gpu wsl csv management)"
  "--nvml=[whether NVML is asked for what \/proc and \/sys lack]:auto|off|PATH:(auto off)"
  "--inventory=[an inventory (\'cdigen inspect --json\') instead of a host]:FILE:_files"
  "--strict[fail if any requested vendor has nothing or is not complete]"
  "--json[print one JSON document and nothing else on stdout]"
  {-v,--verbose}"[say more on stderr]"
  {-q,--quiet}"[say nothing but errors on stderr]"
  "*::a number as in \'cdigen topology\' and \/gpu\/info, a UUID or how it begins (GPU-...), a PCI address or a CDI name (default\: all):"
)

# guard to ensure default positional specs are added only once per session
_shtab_cdigen_docker_args_defaults_added=0

_shtab_cdigen_doctor_options=(
  "(- : *)"{-h,--help}"[show this help message and exit]"
  "*--for=[only this runtime\: podman, docker, containerd, crio (default\: all that are installed)\; kubelet\: a node of Kubernetes, and the runtime that its kubelet uses]:RUNTIME:(podman docker containerd crio kubelet)"
  "*--device=[only this device, such as nvidia.com\/gpu\=0]:NAME:_cdigen_devices"
  "--user=[the rootless containers of this user (default\: whoever runs the command)]:NAME:_users"
  "--migrate=[find what NVIDIA\'s, AMD\'s and Intel\'s tools have left here, and print the steps to cdigen, taking none\; or how the FILEs (scripts, unit and compose files) ask for GPUs, and what to write]:FILE:_files"
  "--bundle=[pack the evidence into FILE (tar.gz)]:FILE:_files"
  "--mask[has no effect any more\: no bundle has UUIDs or the names of hosts and users]"
  "--config=[the configuration (default\: \/etc\/cdigen\/config.yaml)]:FILE:_files"
  "--root=[pretend that the folder DIR is the host]:DIR:_files -/"
  "*--vendor=[only this vendor\: nvidia, amd, intel, or one that another package adds]:NAME:(nvidia amd intel)"
  "--driver-root=[the driver\'s files lie below DIR (a driver container)]:DIR:_files -/"
  "--dev-root=[the device nodes lie below DIR]:DIR:_files -/"
  "*--library-search-path=[look for libraries only here]:DIR:_files -/"
  "*--binary-search-path=[look for programs only here]:DIR:_files -/"
  "*--config-search-path=[look for data files only here]:DIR:_files -/"
  "--mode=[what the host is taken for (default\: auto)]:mode:(auto gpu wsl csv management)"
  "--nvml=[whether NVML is asked for what \/proc and \/sys lack]:auto|off|PATH:(auto off)"
  "--strict[fail if any requested vendor has nothing or is not complete]"
  "--json[print one JSON document and nothing else on stdout]"
  {-v,--verbose}"[say more on stderr]"
  {-q,--quiet}"[say nothing but errors on stderr]"
)

# guard to ensure default positional specs are added only once per session
_shtab_cdigen_doctor_defaults_added=0

_shtab_cdigen_extender_options=(
  "(- : *)"{-h,--help}"[show this help message and exit]"
  "--kubeconfig=[how the API server is reached (default\: as a pod of the cluster)]:FILE:_files"
  "--namespace=[where ledgers are kept (default\: our own, else cdigen)]:NAME:"
  "--resource=[units of memory (default\: aliyun.com\/gpu-mem)]:NAME:"
  "--count-resource=[number of GPUs (default\: aliyun.com\/gpu-count)]:NAME:"
  "--strategy=[fill GPUs one after the other, or take the emptiest (default\: binpack)]:strategy:(binpack spread)"
  "--node-strategy=[prefer the fullest nodes, or the emptiest (default\: as --strategy)]:node_strategy:(binpack spread)"
  "--listen=[where to listen (default\: 127.0.0.1\:12345)]:HOST:PORT:"
  "--tls-cert=[our certificate\: then TLS alone is spoken]:FILE:_files"
  "--tls-key=[its key, where that is another file]:FILE:_files"
  "--client-ca=[clients need a certificate that this CA has signed]:FILE:_files"
  "*--client-name=[a common name or alternative name of clients\' certificates (repeatable\; default\: any)]:NAME:"
  "--token-file=[a token that clients have to send, as Bearer or as Basic\'s password]:FILE:_files"
  "--run-dir=[where the status is kept (default\: \/run\/cdigen-extender)]:DIR:_files -/"
  "--json[print one JSON document and nothing else on stdout]"
  {-v,--verbose}"[say more on stderr]"
  {-q,--quiet}"[say nothing but errors on stderr]"
)

# guard to ensure default positional specs are added only once per session
_shtab_cdigen_extender_defaults_added=0

_shtab_cdigen_generate_options=(
  "(- : *)"{-h,--help}"[show this help message and exit]"
  "--write[into the last spec directory, one file per kind]"
  "--output=[into FILE]:FILE:_files"
  "--output-dir=[into DIR, one file per kind]:DIR:_files -/"
  "--format=[how it is written (default\: json)]:format:(json yaml)"
  "--replace-foreign[move a clashing spec of others aside (with --write)]"
  "--withdraw[remove our specs of vendors and kinds that are gone (with --write)]"
  "*--kind=[only this kind, such as nvidia.com\/gpu]:KIND:_cdigen_kinds"
  "*--profile=[only this profile of the configuration]:NAME:"
  "*--naming=[name devices by index, uuid, type-index, pci, minor, card, or as a vendor of another package has it (repeat it\; default\: the vendor\'s own)]:HOW:(index uuid type-index pci minor card)"
  "*--target=[make it fit a runtime, such as podman-4.3 or containerd-1.7.24\; without a patch level the oldest of the series is meant\; repeat it, the strictest counts]:RUNTIME:(apptainer-1.5 buildkit-0.20 buildkit-0.21 buildkit-0.28 containerd-1.7 containerd-2.0 containerd-2.1 containerd-2.2 cri-o-1.24 cri-o-1.25 cri-o-1.26 cri-o-1.27 cri-o-1.28 cri-o-1.29 cri-o-1.30 cri-o-1.31 cri-o-1.33 cri-o-1.35 docker-25.0 docker-27.5 docker-28.1 docker-29.7 nerdctl-2.1 podman-4.1 podman-4.3 podman-4.4 podman-4.5 podman-4.7 podman-4.8 podman-5.1 podman-5.2 podman-5.5 podman-6.0)"
  "--layout=[how the driver\'s files reach containers (default\: the profile\'s, which is auto)]:layout:(auto files view hwcaps)"
  "--hook=[what runs when a container starts (default\: the profile\'s, which is auto)]:hook:(auto none cdigen nvidia)"
  "--container-driver-root=[containers get the driver\'s files below DIR]:DIR:_files -/"
  "*--spec-dir=[a spec directory instead of the default ones\; repeat it, the last has priority]:DIR:_files -/"
  "--config=[the configuration (default\: \/etc\/cdigen\/config.yaml)]:FILE:_files"
  "--root=[pretend that the folder DIR is the host]:DIR:_files -/"
  "*--vendor=[only this vendor\: nvidia, amd, intel, or one that another package adds]:NAME:(nvidia amd intel)"
  "--driver-root=[the driver\'s files lie below DIR (a driver container)]:DIR:_files -/"
  "--dev-root=[the device nodes lie below DIR]:DIR:_files -/"
  "*--library-search-path=[look for libraries only here]:DIR:_files -/"
  "*--binary-search-path=[look for programs only here]:DIR:_files -/"
  "*--config-search-path=[look for data files only here]:DIR:_files -/"
  "--mode=[what the host is taken for (default\: auto)]:mode:(auto gpu wsl csv management)"
  "--nvml=[whether NVML is asked for what \/proc and \/sys lack]:auto|off|PATH:(auto off)"
  "--inventory=[an inventory (\'cdigen inspect --json\') instead of a host]:FILE:_files"
  "--strict[fail if any requested vendor has nothing or is not complete]"
  "--json[print one JSON document and nothing else on stdout]"
  {-v,--verbose}"[say more on stderr]"
  {-q,--quiet}"[say nothing but errors on stderr]"
)

# guard to ensure default positional specs are added only once per session
_shtab_cdigen_generate_defaults_added=0

_shtab_cdigen_health_options=(
  "(- : *)"{-h,--help}"[show this help message and exit]"
  "--mark=[mark a device as unhealthy, until --clear\: by its CDI name, number, UUID or PCI address]:DEVICE:_cdigen_devices"
  "--reason=[with --mark\: why, in one line of 200 characters at most]:TEXT:"
  "--clear=[remove the mark from a device, and end the causes that events are (Xids, resets, PCIe errors)\; one that the daemon still sees stays]:DEVICE:_cdigen_devices"
  "--config=[the configuration (default\: \/etc\/cdigen\/config.yaml)]:FILE:_files"
  "--root=[pretend that the folder DIR is the host]:DIR:_files -/"
  "--json[print one JSON document and nothing else on stdout]"
  {-v,--verbose}"[say more on stderr]"
  {-q,--quiet}"[say nothing but errors on stderr]"
)

# guard to ensure default positional specs are added only once per session
_shtab_cdigen_health_defaults_added=0

_shtab_cdigen_inspect_options=(
  "(- : *)"{-h,--help}"[show this help message and exit]"
  "--figures[show what the devices do instead\: memory, utilization, temperature, power, processes]"
  "*--kind=[only this kind, such as nvidia.com\/gpu]:KIND:_cdigen_kinds"
  "*--profile=[only this profile of the configuration]:NAME:"
  "*--naming=[name devices by index, uuid, type-index, pci, minor, card, or as a vendor of another package has it (repeat it\; default\: the vendor\'s own)]:HOW:(index uuid type-index pci minor card)"
  "*--target=[make it fit a runtime, such as podman-4.3 or containerd-1.7.24\; without a patch level the oldest of the series is meant\; repeat it, the strictest counts]:RUNTIME:(apptainer-1.5 buildkit-0.20 buildkit-0.21 buildkit-0.28 containerd-1.7 containerd-2.0 containerd-2.1 containerd-2.2 cri-o-1.24 cri-o-1.25 cri-o-1.26 cri-o-1.27 cri-o-1.28 cri-o-1.29 cri-o-1.30 cri-o-1.31 cri-o-1.33 cri-o-1.35 docker-25.0 docker-27.5 docker-28.1 docker-29.7 nerdctl-2.1 podman-4.1 podman-4.3 podman-4.4 podman-4.5 podman-4.7 podman-4.8 podman-5.1 podman-5.2 podman-5.5 podman-6.0)"
  "--layout=[how the driver\'s files reach containers (default\: the profile\'s, which is auto)]:layout:(auto files view hwcaps)"
  "--hook=[what runs when a container starts (default\: the profile\'s, which is auto)]:hook:(auto none cdigen nvidia)"
  "--container-driver-root=[containers get the driver\'s files below DIR]:DIR:_files -/"
  "*--spec-dir=[a spec directory instead of the default ones\; repeat it, the last has priority]:DIR:_files -/"
  "--config=[the configuration (default\: \/etc\/cdigen\/config.yaml)]:FILE:_files"
  "--root=[pretend that the folder DIR is the host]:DIR:_files -/"
  "*--vendor=[only this vendor\: nvidia, amd, intel, or one that another package adds]:NAME:(nvidia amd intel)"
  "--driver-root=[the driver\'s files lie below DIR (a driver container)]:DIR:_files -/"
  "--dev-root=[the device nodes lie below DIR]:DIR:_files -/"
  "*--library-search-path=[look for libraries only here]:DIR:_files -/"
  "*--binary-search-path=[look for programs only here]:DIR:_files -/"
  "*--config-search-path=[look for data files only here]:DIR:_files -/"
  "--mode=[what the host is taken for (default\: auto)]:mode:(auto gpu wsl csv management)"
  "--nvml=[whether NVML is asked for what \/proc and \/sys lack]:auto|off|PATH:(auto off)"
  "--inventory=[an inventory (\'cdigen inspect --json\') instead of a host]:FILE:_files"
  "--strict[fail if any requested vendor has nothing or is not complete]"
  "--json[print one JSON document and nothing else on stdout]"
  {-v,--verbose}"[say more on stderr]"
  {-q,--quiet}"[say nothing but errors on stderr]"
)

# guard to ensure default positional specs are added only once per session
_shtab_cdigen_inspect_defaults_added=0

_shtab_cdigen_install_service_options=(
  "(- : *)"{-h,--help}"[show this help message and exit]"
  "--remove[stop the services, withdraw specs that name the hook, remove what this command has put there]"
  "--no-start[only put the files there\; enable, start and restart nothing]"
  "--prefix=[below which folder (default\: \/usr)]:DIR:_files -/"
  "--destdir=[the folder that stands for \/\: nothing of this host is changed or started]:DIR:_files -/"
  "--json[print one JSON document and nothing else on stdout]"
  {-v,--verbose}"[say more on stderr]"
  {-q,--quiet}"[say nothing but errors on stderr]"
)

# guard to ensure default positional specs are added only once per session
_shtab_cdigen_install_service_defaults_added=0

_shtab_cdigen_kubelet_options=(
  "(- : *)"{-h,--help}"[show this help message and exit]"
  "--kubelet-dir=[the kubelet\'s own folder, as its --root-dir (default\: \/var\/lib\/kubelet)]:DIR:_files -/"
  "--kubeconfig=[how the API server is reached, for GPUs that are shared by memory]:FILE:_files"
  "--node-name=[what the API server calls this node (default\: the host\'s name)]:NAME:"
  "--run-dir=[where status and HTTP socket are kept]:DIR:_files -/"
  "--standby[where another instance serves this host, wait until it ends, and take its place at once]"
  "--daemon-dir=[where \'cdigen run\' shows devices and health (default\: its run_dir in the configuration)]:DIR:_files -/"
  "--config=[the configuration (default\: \/etc\/cdigen\/config.yaml)]:FILE:_files"
  "--root=[pretend that the folder DIR is the host]:DIR:_files -/"
  "*--spec-dir=[a spec directory instead of the default ones\; repeat it, the last has priority]:DIR:_files -/"
  "--json[print one JSON document and nothing else on stdout]"
  {-v,--verbose}"[say more on stderr]"
  {-q,--quiet}"[say nothing but errors on stderr]"
)

# guard to ensure default positional specs are added only once per session
_shtab_cdigen_kubelet_defaults_added=0

_shtab_cdigen_list_options=(
  "(- : *)"{-h,--help}"[show this help message and exit]"
  "*--kind=[only this kind, such as nvidia.com\/gpu]:KIND:_cdigen_kinds"
  "--config=[the configuration (default\: \/etc\/cdigen\/config.yaml)]:FILE:_files"
  "--root=[pretend that the folder DIR is the host]:DIR:_files -/"
  "*--spec-dir=[a spec directory instead of the default ones\; repeat it, the last has priority]:DIR:_files -/"
  "--json[print one JSON document and nothing else on stdout]"
  {-v,--verbose}"[say more on stderr]"
  {-q,--quiet}"[say nothing but errors on stderr]"
)

# guard to ensure default positional specs are added only once per session
_shtab_cdigen_list_defaults_added=0

_shtab_cdigen_nri_options=(
  "(- : *)"{-h,--help}"[show this help message and exit]"
  "--socket=[where the runtime listens for plugins]:PATH:"
  "--index=[the place among plugins, 00 to 99 (default\: 20)]:NN:"
  "--name=[the plugin\'s name there (default\: cdigen)]:NAME:"
  "--run-dir=[where status and HTTP socket are kept]:DIR:_files -/"
  "--standby[where another instance serves the runtime, serve beside it, and in its place when it ends]"
  "--config=[the configuration (default\: \/etc\/cdigen\/config.yaml)]:FILE:_files"
  "--root=[pretend that the folder DIR is the host]:DIR:_files -/"
  "*--spec-dir=[a spec directory instead of the default ones\; repeat it, the last has priority]:DIR:_files -/"
  "--json[print one JSON document and nothing else on stdout]"
  {-v,--verbose}"[say more on stderr]"
  {-q,--quiet}"[say nothing but errors on stderr]"
)

# guard to ensure default positional specs are added only once per session
_shtab_cdigen_nri_defaults_added=0

_shtab_cdigen_prune_options=(
  "(- : *)"{-h,--help}"[show this help message and exit]"
  "--dry-run[remove nothing, only say what would be]"
  "--config=[the configuration (default\: \/etc\/cdigen\/config.yaml)]:FILE:_files"
  "--root=[pretend that the folder DIR is the host]:DIR:_files -/"
  "*--spec-dir=[look here as well for specs that name views, beside the default and configured directories]:DIR:_files -/"
  "--json[print one JSON document and nothing else on stdout]"
  {-v,--verbose}"[say more on stderr]"
  {-q,--quiet}"[say nothing but errors on stderr]"
)

# guard to ensure default positional specs are added only once per session
_shtab_cdigen_prune_defaults_added=0

_shtab_cdigen_resolve_options=(
  "(- : *)"{-h,--help}"[show this help message and exit]"
  "*--env=[a variable\; repeat it]:KEY=VALUE:"
  "--image-config=[what \'podman image inspect\' or \'docker image inspect\' prints of its image (-\: standard input)\; --env counts over its variables]:FILE:_files"
  "*--annotation=[an annotation of its pod\; repeat it]:KEY=VALUE:"
  "*--label=[a label of its pod\; repeat it]:KEY=VALUE:"
  "--namespace=[the pod\'s (default\: default)]:NAME:"
  "--runtime-handler=[the pod\'s (default\: none)]:NAME:"
  "--container=[the container\'s own name]:NAME:"
  "*--mount=[a mount of SOURCE, a path of the host, at PATH\; repeat it]:SOURCE:PATH:"
  "--privileged[it is privileged]"
  "*--device-node=[a device node that it has already\; repeat it]:PATH:"
  "*--cdi-device=[a CDI device that it has already\; repeat it]:NAME:"
  "--config=[the configuration (default\: \/etc\/cdigen\/config.yaml)]:FILE:_files"
  "--root=[pretend that the folder DIR is the host]:DIR:_files -/"
  "*--spec-dir=[a spec directory instead of the default ones\; repeat it, the last has priority]:DIR:_files -/"
  "--run-dir=[where the daemon keeps its inventory]:DIR:_files -/"
  "--json[print one JSON document and nothing else on stdout]"
  {-v,--verbose}"[say more on stderr]"
  {-q,--quiet}"[say nothing but errors on stderr]"
)

# guard to ensure default positional specs are added only once per session
_shtab_cdigen_resolve_defaults_added=0

_shtab_cdigen_run_options=(
  "(- : *)"{-h,--help}"[show this help message and exit]"
  "--run-dir=[where status and sockets are kept]:DIR:_files -/"
  "--standby[where another instance serves this host, wait until it ends, and take its place at once]"
  "*--kind=[only this kind, such as nvidia.com\/gpu]:KIND:_cdigen_kinds"
  "*--profile=[only this profile of the configuration]:NAME:"
  "*--naming=[name devices by index, uuid, type-index, pci, minor, card, or as a vendor of another package has it (repeat it\; default\: the vendor\'s own)]:HOW:(index uuid type-index pci minor card)"
  "*--target=[make it fit a runtime, such as podman-4.3 or containerd-1.7.24\; without a patch level the oldest of the series is meant\; repeat it, the strictest counts]:RUNTIME:(apptainer-1.5 buildkit-0.20 buildkit-0.21 buildkit-0.28 containerd-1.7 containerd-2.0 containerd-2.1 containerd-2.2 cri-o-1.24 cri-o-1.25 cri-o-1.26 cri-o-1.27 cri-o-1.28 cri-o-1.29 cri-o-1.30 cri-o-1.31 cri-o-1.33 cri-o-1.35 docker-25.0 docker-27.5 docker-28.1 docker-29.7 nerdctl-2.1 podman-4.1 podman-4.3 podman-4.4 podman-4.5 podman-4.7 podman-4.8 podman-5.1 podman-5.2 podman-5.5 podman-6.0)"
  "--layout=[how the driver\'s files reach containers (default\: the profile\'s, which is auto)]:layout:(auto files view hwcaps)"
  "--hook=[what runs when a container starts (default\: the profile\'s, which is auto)]:hook:(auto none cdigen nvidia)"
  "--container-driver-root=[containers get the driver\'s files below DIR]:DIR:_files -/"
  "*--spec-dir=[a spec directory instead of the default ones\; repeat it, the last has priority]:DIR:_files -/"
  "--config=[the configuration (default\: \/etc\/cdigen\/config.yaml)]:FILE:_files"
  "--root=[pretend that the folder DIR is the host]:DIR:_files -/"
  "*--vendor=[only this vendor\: nvidia, amd, intel, or one that another package adds]:NAME:(nvidia amd intel)"
  "--driver-root=[the driver\'s files lie below DIR (a driver container)]:DIR:_files -/"
  "--dev-root=[the device nodes lie below DIR]:DIR:_files -/"
  "*--library-search-path=[look for libraries only here]:DIR:_files -/"
  "*--binary-search-path=[look for programs only here]:DIR:_files -/"
  "*--config-search-path=[look for data files only here]:DIR:_files -/"
  "--mode=[what the host is taken for (default\: auto)]:mode:(auto gpu wsl csv management)"
  "--nvml=[whether NVML is asked for what \/proc and \/sys lack]:auto|off|PATH:(auto off)"
  "--strict[fail if any requested vendor has nothing or is not complete]"
  "--json[print one JSON document and nothing else on stdout]"
  {-v,--verbose}"[say more on stderr]"
  {-q,--quiet}"[say nothing but errors on stderr]"
)

# guard to ensure default positional specs are added only once per session
_shtab_cdigen_run_defaults_added=0

_shtab_cdigen_status_options=(
  "(- : *)"{-h,--help}"[show this help message and exit]"
  "--config=[the configuration (default\: \/etc\/cdigen\/config.yaml)]:FILE:_files"
  "--root=[pretend that the folder DIR is the host]:DIR:_files -/"
  "--run-dir=[where the daemon keeps its status]:DIR:_files -/"
  "--json[print one JSON document and nothing else on stdout]"
  {-v,--verbose}"[say more on stderr]"
  {-q,--quiet}"[say nothing but errors on stderr]"
)

# guard to ensure default positional specs are added only once per session
_shtab_cdigen_status_defaults_added=0

_shtab_cdigen_topology_options=(
  "(- : *)"{-h,--help}"[show this help message and exit]"
  "--config=[the configuration (default\: \/etc\/cdigen\/config.yaml)]:FILE:_files"
  "--root=[pretend that the folder DIR is the host]:DIR:_files -/"
  "*--vendor=[only this vendor\: nvidia, amd, intel, or one that another package adds]:NAME:(nvidia amd intel)"
  "--driver-root=[the driver\'s files lie below DIR (a driver container)]:DIR:_files -/"
  "--dev-root=[the device nodes lie below DIR]:DIR:_files -/"
  "*--library-search-path=[look for libraries only here]:DIR:_files -/"
  "*--binary-search-path=[look for programs only here]:DIR:_files -/"
  "*--config-search-path=[look for data files only here]:DIR:_files -/"
  "--mode=[what the host is taken for (default\: auto)]:mode:(auto gpu wsl csv management)"
  "--nvml=[whether NVML is asked for what \/proc and \/sys lack]:auto|off|PATH:(auto off)"
  "--inventory=[an inventory (\'cdigen inspect --json\') instead of a host]:FILE:_files"
  "--strict[fail if any requested vendor has nothing or is not complete]"
  "--svg=[draw a picture of it into FILE (\'\/dev\/stdout\' prints it) instead of the matrix]:FILE:_files"
  "--json[print one JSON document and nothing else on stdout]"
  {-v,--verbose}"[say more on stderr]"
  {-q,--quiet}"[say nothing but errors on stderr]"
)

# guard to ensure default positional specs are added only once per session
_shtab_cdigen_topology_defaults_added=0

_shtab_cdigen_validate_options=(
  "(- : *)"{-h,--help}"[show this help message and exit]"
  "--host[also hold it against this host (see --root)]"
  "*--target=[fail unless this runtime loads it\: podman-4.9, containerd-1.7.24\; may be repeated]:RUNTIME:(apptainer-1.5 buildkit-0.20 buildkit-0.21 buildkit-0.28 containerd-1.7 containerd-2.0 containerd-2.1 containerd-2.2 cri-o-1.24 cri-o-1.25 cri-o-1.26 cri-o-1.27 cri-o-1.28 cri-o-1.29 cri-o-1.30 cri-o-1.31 cri-o-1.33 cri-o-1.35 docker-25.0 docker-27.5 docker-28.1 docker-29.7 nerdctl-2.1 podman-4.1 podman-4.3 podman-4.4 podman-4.5 podman-4.7 podman-4.8 podman-5.1 podman-5.2 podman-5.5 podman-6.0)"
  "*--loader=[fail unless this version of the CDI library loads it\: 0.8.0, main\; may be repeated]:VERSION:(0.5.2 0.5.3 0.5.4 0.6.0 0.6.1 0.6.2 0.7.0 0.7.1 0.7.2 0.8.0 0.8.1 1.0.0 1.0.1 1.1.0 main)"
  "--schema[ask the JSON Schema about specs with thousands of mounts too]"
  "--config=[the configuration (default\: \/etc\/cdigen\/config.yaml)]:FILE:_files"
  "--root=[pretend that the folder DIR is the host]:DIR:_files -/"
  "--json[print one JSON document and nothing else on stdout]"
  {-v,--verbose}"[say more on stderr]"
  {-q,--quiet}"[say nothing but errors on stderr]"
  "*:a spec file, or a folder of .json and .yaml files\; \'-\' is standard input:_files"
)

# guard to ensure default positional specs are added only once per session
_shtab_cdigen_validate_defaults_added=0

_shtab_cdigen_withdraw_options=(
  "(- : *)"{-h,--help}"[show this help message and exit]"
  "--dry-run[remove nothing, only say what would be]"
  "*--kind=[only this kind, such as nvidia.com\/gpu]:KIND:_cdigen_kinds"
  "*--vendor=[only this vendor\'s\: nvidia, amd, intel, or one that another package adds]:NAME:(nvidia amd intel)"
  "--with-hook[only specs that run cdigen\'s start-up hook\: without it no container starts with them]"
  "*--spec-dir=[a spec directory instead of the default ones\; repeat it, the last has priority]:DIR:_files -/"
  "--config=[the configuration (default\: \/etc\/cdigen\/config.yaml)]:FILE:_files"
  "--root=[pretend that the folder DIR is the host]:DIR:_files -/"
  "--run-dir=[where the daemon would keep its status]:DIR:_files -/"
  "--json[print one JSON document and nothing else on stdout]"
  {-v,--verbose}"[say more on stderr]"
  {-q,--quiet}"[say nothing but errors on stderr]"
)

# guard to ensure default positional specs are added only once per session
_shtab_cdigen_withdraw_defaults_added=0


_shtab_cdigen() {
  local context state line curcontext="$curcontext" one_or_more='(*)' remainder='(-)*:' default='*::: :->cdigen'

  # Add default positional/remainder specs only if none exist, and only once per session
  if (( ! _shtab_cdigen_defaults_added )); then
    if (( ${_shtab_cdigen_options[(I)${(q)one_or_more}*]} +          ${_shtab_cdigen_options[(I)${(q)remainder}*]} +          ${_shtab_cdigen_options[(I)${(q)default}]} == 0 )); then
      _shtab_cdigen_options+=(': :_shtab_cdigen_commands' '*::: :->cdigen')
    fi
    _shtab_cdigen_defaults_added=1
  fi
  _arguments -C -s $_shtab_cdigen_options

  case $state in
    cdigen)
      words=($line[1] "${words[@]}")
      (( CURRENT += 1 ))
      curcontext="${curcontext%:*:*}:_shtab_cdigen-$line[1]:"
      case $line[1] in
        config) _arguments -C -s $_shtab_cdigen_config_options ;;
        configure) _arguments -C -s $_shtab_cdigen_configure_options ;;
        diff) _arguments -C -s $_shtab_cdigen_diff_options ;;
        docker-args) _arguments -C -s $_shtab_cdigen_docker_args_options ;;
        doctor) _arguments -C -s $_shtab_cdigen_doctor_options ;;
        extender) _arguments -C -s $_shtab_cdigen_extender_options ;;
        generate) _arguments -C -s $_shtab_cdigen_generate_options ;;
        health) _arguments -C -s $_shtab_cdigen_health_options ;;
        inspect) _arguments -C -s $_shtab_cdigen_inspect_options ;;
        install-service) _arguments -C -s $_shtab_cdigen_install_service_options ;;
        kubelet) _arguments -C -s $_shtab_cdigen_kubelet_options ;;
        list) _arguments -C -s $_shtab_cdigen_list_options ;;
        nri) _arguments -C -s $_shtab_cdigen_nri_options ;;
        prune) _arguments -C -s $_shtab_cdigen_prune_options ;;
        resolve) _arguments -C -s $_shtab_cdigen_resolve_options ;;
        run) _arguments -C -s $_shtab_cdigen_run_options ;;
        status) _arguments -C -s $_shtab_cdigen_status_options ;;
        topology) _arguments -C -s $_shtab_cdigen_topology_options ;;
        validate) _arguments -C -s $_shtab_cdigen_validate_options ;;
        withdraw) _arguments -C -s $_shtab_cdigen_withdraw_options ;;
      esac
  esac
}

# Custom Preamble
_cdigen_kinds() {
	local -a found=(${(f)"$(cdigen list --quiet 2>/dev/null | sed -n 's/^\([A-Za-z0-9._:-]*\/[A-Za-z0-9._:-]*=[A-Za-z0-9._:-]*\)  *\(usable  \|unhealthy: \).*/\1/p' | sed 's/=.*//' | sort -u)"})
	compadd -a found
}
_cdigen_devices() {
	local -a found=(${(f)"$(cdigen list --quiet 2>/dev/null | sed -n 's/^\([A-Za-z0-9._:-]*\/[A-Za-z0-9._:-]*=[A-Za-z0-9._:-]*\)  *\(usable  \|unhealthy: \).*/\1/p')"})
	compadd -a found
}
# End Custom Preamble


typeset -A opt_args

if [[ $zsh_eval_context[-1] == eval ]]; then
  # eval/source/. command, register function for later
  compdef _shtab_cdigen -N cdigen
else
  # autoload from fpath, call function directly
  _shtab_cdigen "$@"
fi
