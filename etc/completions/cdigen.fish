# Made by 'make generated' of the commands' own parsers, with https://github.com/tqdm/shtab: not to be edited.

# Custom Preamble
function _cdigen_kinds
	cdigen list --quiet 2>/dev/null | sed -n 's/^\([^ ]*=[^ ]*\)  *usable  .*/\1/p' | sed 's/=.*//' | sort -u
end
function _cdigen_devices
	cdigen list --quiet 2>/dev/null | sed -n 's/^\([^ ]*=[^ ]*\)  *usable  .*/\1/p'
end
# End Custom Preamble

# Parse current commandline:
# - _shtab_cdigen_cmdpath=(sub)command path seen so far
# - _shtab_cdigen_npos=number of positional arguments given after it
# - options are skipped based on _shtab_cdigen_opts_with_value & _shtab_cdigen_commands lists
function _shtab_cdigen_scan
  set -g _shtab_cdigen_cmdpath ''
  set -g _shtab_cdigen_npos 0
  set -l tokens (commandline -opc)
  set -e tokens[1]
  set -l expect_value 0
  for t in $tokens
    if test $expect_value -eq 1
      set expect_value 0
      continue
    end
    switch "$t"
      case '--*=*'
        continue
      case '-*'
        if contains -- $t $_shtab_cdigen_opts_with_value
          set expect_value 1
        end
        continue
      case '*'
        if test $_shtab_cdigen_npos -eq 0
          set -l candidate $t
          if test -n "$_shtab_cdigen_cmdpath"
            set candidate "$_shtab_cdigen_cmdpath $t"
          end
          if contains -- $candidate $_shtab_cdigen_commands
            set -g _shtab_cdigen_cmdpath $candidate
            continue
          end
        end
        set -g _shtab_cdigen_npos (math $_shtab_cdigen_npos + 1)
    end
  end
end

# Condition helper: true if the current (sub)command path equals the given one.
function _shtab_cdigen_using
  _shtab_cdigen_scan
  test "$_shtab_cdigen_cmdpath" = "$argv"
end

set -g _shtab_cdigen_commands config configure diff doctor generate inspect list nri prune resolve run status validate withdraw
set -g _shtab_cdigen_opts_with_value --annotation --bundle --cdi-device --config --config-search-path --container --container-driver-root --dev-root --device --device-node --driver-root --env --for --format --hook --index --inventory --kind --label --layout --library-search-path --loader --mode --name --namespace --naming --nvml --output --output-dir --profile --root --run-dir --runtime-handler --socket --spec-dir --target --user --vendor

complete -c cdigen -e
complete -c cdigen -f

complete -c cdigen -n _shtab_cdigen_using -s h -l help -d 'show help'
complete -c cdigen -n _shtab_cdigen_using -s V -l version -d 'show the version'
complete -c cdigen -n '_shtab_cdigen_using; and test $_shtab_cdigen_npos -eq 0' -a config -d 'Check the configuration alone.'
complete -c cdigen -n '_shtab_cdigen_using config' -s h -l help -d 'show this help message and exit'
complete -c cdigen -n '_shtab_cdigen_using config' -l config -xka "(__fish_complete_path (commandline -ct))" -d 'the configuration (default: /etc/cdigen/config.yaml)'
complete -c cdigen -n '_shtab_cdigen_using config' -l root -xka "(__fish_complete_directories)" -d 'pretend that the folder DIR is the host'
complete -c cdigen -n '_shtab_cdigen_using config' -l json -d 'print one JSON document and nothing else on stdout'
complete -c cdigen -n '_shtab_cdigen_using config' -s v -l verbose -d 'say more on stderr'
complete -c cdigen -n '_shtab_cdigen_using config' -s q -l quiet -d 'say nothing but errors on stderr'
complete -c cdigen -n '_shtab_cdigen_using config; and test $_shtab_cdigen_npos -eq 0' -ka "check" -d 'check: is all of it right? exit 0; else exit 2'
complete -c cdigen -n '_shtab_cdigen_using; and test $_shtab_cdigen_npos -eq 0' -a configure -d 'Set in a container runtime'"'"'s own configuration what CDI needs.'
complete -c cdigen -n '_shtab_cdigen_using configure' -s h -l help -d 'show this help message and exit'
complete -c cdigen -n '_shtab_cdigen_using configure' -l dry-run -d 'change nothing, print what would be as a diff'
complete -c cdigen -n '_shtab_cdigen_using configure' -l undo -d 'put back what this command has changed before'
complete -c cdigen -n '_shtab_cdigen_using configure' -l nri -d 'switch NRI on as well (containerd, crio)'
complete -c cdigen -n '_shtab_cdigen_using configure' -l nri-required -d 'as --nri, and no container starts while the plugin is away (containerd 2.2, CRI-O 1.34)'
complete -c cdigen -n '_shtab_cdigen_using configure' -l restart -d 'restart the runtime if anything was changed'
complete -c cdigen -n '_shtab_cdigen_using configure' -l spec-dir -xka "(__fish_complete_directories)" -d 'a spec directory that the runtime shall read, as the host names it; repeat it, the last has priority (default: those of the configuration)'
complete -c cdigen -n '_shtab_cdigen_using configure' -l config -xka "(__fish_complete_path (commandline -ct))" -d 'the configuration (default: /etc/cdigen/config.yaml)'
complete -c cdigen -n '_shtab_cdigen_using configure' -l root -xka "(__fish_complete_directories)" -d 'pretend that the folder DIR is the host'
complete -c cdigen -n '_shtab_cdigen_using configure' -l json -d 'print one JSON document and nothing else on stdout'
complete -c cdigen -n '_shtab_cdigen_using configure' -s v -l verbose -d 'say more on stderr'
complete -c cdigen -n '_shtab_cdigen_using configure' -s q -l quiet -d 'say nothing but errors on stderr'
complete -c cdigen -n '_shtab_cdigen_using configure; and test $_shtab_cdigen_npos -eq 0' -ka "podman docker containerd crio" -d 'podman, docker, containerd, crio'
complete -c cdigen -n '_shtab_cdigen_using; and test $_shtab_cdigen_npos -eq 0' -a diff -d 'Compare the specs on disk with what this host would give now.'
complete -c cdigen -n '_shtab_cdigen_using diff' -s h -l help -d 'show this help message and exit'
complete -c cdigen -n '_shtab_cdigen_using diff' -l kind -xka "(_cdigen_kinds)" -d 'only this kind, such as nvidia.com/gpu'
complete -c cdigen -n '_shtab_cdigen_using diff' -l profile -x -d 'only this profile of the configuration'
complete -c cdigen -n '_shtab_cdigen_using diff' -l naming -xka "index uuid type-index pci minor card" -d 'name devices by index, uuid, type-index, pci, minor, card (repeat it; default: the vendor'"'"'s own)'
complete -c cdigen -n '_shtab_cdigen_using diff' -l target -xka "apptainer-1.5 buildkit-0.20 buildkit-0.21 buildkit-0.28 containerd-1.7 containerd-2.0 containerd-2.1 containerd-2.2 cri-o-1.24 cri-o-1.25 cri-o-1.26 cri-o-1.27 cri-o-1.28 cri-o-1.29 cri-o-1.30 cri-o-1.31 cri-o-1.33 cri-o-1.35 docker-25.0 docker-27.5 docker-28.1 docker-29.7 nerdctl-2.1 podman-4.1 podman-4.3 podman-4.4 podman-4.5 podman-4.7 podman-4.8 podman-5.1 podman-5.2 podman-5.5 podman-6.0" -d 'make it fit a runtime, such as podman-4.3 or containerd-1.7.24; without a patch level the oldest of the series is meant; repeat it, the strictest counts'
complete -c cdigen -n '_shtab_cdigen_using diff' -l layout -xka "auto files view hwcaps" -d 'how the driver'"'"'s files reach containers (default: the profile'"'"'s, which is auto)'
complete -c cdigen -n '_shtab_cdigen_using diff' -l hook -xka "auto none cdigen nvidia" -d 'what runs when a container starts (default: the profile'"'"'s, which is auto)'
complete -c cdigen -n '_shtab_cdigen_using diff' -l container-driver-root -xka "(__fish_complete_directories)" -d 'containers get the driver'"'"'s files below DIR'
complete -c cdigen -n '_shtab_cdigen_using diff' -l spec-dir -xka "(__fish_complete_directories)" -d 'a spec directory instead of the default ones; repeat it, the last has priority'
complete -c cdigen -n '_shtab_cdigen_using diff' -l config -xka "(__fish_complete_path (commandline -ct))" -d 'the configuration (default: /etc/cdigen/config.yaml)'
complete -c cdigen -n '_shtab_cdigen_using diff' -l root -xka "(__fish_complete_directories)" -d 'pretend that the folder DIR is the host'
complete -c cdigen -n '_shtab_cdigen_using diff' -l vendor -xka "nvidia amd intel" -d 'only this vendor: nvidia, amd, intel, or one that another package adds'
complete -c cdigen -n '_shtab_cdigen_using diff' -l driver-root -xka "(__fish_complete_directories)" -d 'the driver'"'"'s files lie below DIR (a driver container)'
complete -c cdigen -n '_shtab_cdigen_using diff' -l dev-root -xka "(__fish_complete_directories)" -d 'the device nodes lie below DIR'
complete -c cdigen -n '_shtab_cdigen_using diff' -l library-search-path -xka "(__fish_complete_directories)" -d 'look for libraries only here'
complete -c cdigen -n '_shtab_cdigen_using diff' -l config-search-path -xka "(__fish_complete_directories)" -d 'look for data files only here'
complete -c cdigen -n '_shtab_cdigen_using diff' -l mode -xka "auto gpu wsl csv management" -d 'what the host is taken for (default: auto)'
complete -c cdigen -n '_shtab_cdigen_using diff' -l nvml -xka "auto off" -d 'whether NVML is asked for what /proc and /sys lack'
complete -c cdigen -n '_shtab_cdigen_using diff' -l strict -d 'fail if any requested vendor has nothing or is not complete'
complete -c cdigen -n '_shtab_cdigen_using diff' -l json -d 'print one JSON document and nothing else on stdout'
complete -c cdigen -n '_shtab_cdigen_using diff' -s v -l verbose -d 'say more on stderr'
complete -c cdigen -n '_shtab_cdigen_using diff' -s q -l quiet -d 'say nothing but errors on stderr'
complete -c cdigen -n '_shtab_cdigen_using; and test $_shtab_cdigen_npos -eq 0' -a doctor -d 'Find what keeps containers from the devices, and what mends it.'
complete -c cdigen -n '_shtab_cdigen_using doctor' -s h -l help -d 'show this help message and exit'
complete -c cdigen -n '_shtab_cdigen_using doctor' -l for -xka "podman docker containerd crio" -d 'only this runtime: podman, docker, containerd, crio (default: all that are installed)'
complete -c cdigen -n '_shtab_cdigen_using doctor' -l device -xka "(_cdigen_devices)" -d 'only this device, such as nvidia.com/gpu=0'
complete -c cdigen -n '_shtab_cdigen_using doctor' -l user -xka "(__fish_complete_users)" -d 'the rootless containers of this user (default: whoever runs the command)'
complete -c cdigen -n '_shtab_cdigen_using doctor' -l bundle -xka "(__fish_complete_path (commandline -ct))" -d 'pack the evidence into FILE (tar.gz)'
complete -c cdigen -n '_shtab_cdigen_using doctor' -l mask -d 'replace UUIDs, serial numbers and the names of hosts and users in it'
complete -c cdigen -n '_shtab_cdigen_using doctor' -l config -xka "(__fish_complete_path (commandline -ct))" -d 'the configuration (default: /etc/cdigen/config.yaml)'
complete -c cdigen -n '_shtab_cdigen_using doctor' -l root -xka "(__fish_complete_directories)" -d 'pretend that the folder DIR is the host'
complete -c cdigen -n '_shtab_cdigen_using doctor' -l vendor -xka "nvidia amd intel" -d 'only this vendor: nvidia, amd, intel, or one that another package adds'
complete -c cdigen -n '_shtab_cdigen_using doctor' -l driver-root -xka "(__fish_complete_directories)" -d 'the driver'"'"'s files lie below DIR (a driver container)'
complete -c cdigen -n '_shtab_cdigen_using doctor' -l dev-root -xka "(__fish_complete_directories)" -d 'the device nodes lie below DIR'
complete -c cdigen -n '_shtab_cdigen_using doctor' -l library-search-path -xka "(__fish_complete_directories)" -d 'look for libraries only here'
complete -c cdigen -n '_shtab_cdigen_using doctor' -l config-search-path -xka "(__fish_complete_directories)" -d 'look for data files only here'
complete -c cdigen -n '_shtab_cdigen_using doctor' -l mode -xka "auto gpu wsl csv management" -d 'what the host is taken for (default: auto)'
complete -c cdigen -n '_shtab_cdigen_using doctor' -l nvml -xka "auto off" -d 'whether NVML is asked for what /proc and /sys lack'
complete -c cdigen -n '_shtab_cdigen_using doctor' -l strict -d 'fail if any requested vendor has nothing or is not complete'
complete -c cdigen -n '_shtab_cdigen_using doctor' -l json -d 'print one JSON document and nothing else on stdout'
complete -c cdigen -n '_shtab_cdigen_using doctor' -s v -l verbose -d 'say more on stderr'
complete -c cdigen -n '_shtab_cdigen_using doctor' -s q -l quiet -d 'say nothing but errors on stderr'
complete -c cdigen -n '_shtab_cdigen_using; and test $_shtab_cdigen_npos -eq 0' -a generate -d 'Print or write the CDI specs of this host.'
complete -c cdigen -n '_shtab_cdigen_using generate' -s h -l help -d 'show this help message and exit'
complete -c cdigen -n '_shtab_cdigen_using generate' -l write -d 'into the last spec directory, one file per kind'
complete -c cdigen -n '_shtab_cdigen_using generate' -l output -xka "(__fish_complete_path (commandline -ct))" -d 'into FILE'
complete -c cdigen -n '_shtab_cdigen_using generate' -l output-dir -xka "(__fish_complete_directories)" -d 'into DIR, one file per kind'
complete -c cdigen -n '_shtab_cdigen_using generate' -l format -xka "json yaml" -d 'how it is written (default: json)'
complete -c cdigen -n '_shtab_cdigen_using generate' -l replace-foreign -d 'move a clashing spec of others aside (with --write)'
complete -c cdigen -n '_shtab_cdigen_using generate' -l withdraw -d 'remove our specs of vendors and kinds that are gone (with --write)'
complete -c cdigen -n '_shtab_cdigen_using generate' -l kind -xka "(_cdigen_kinds)" -d 'only this kind, such as nvidia.com/gpu'
complete -c cdigen -n '_shtab_cdigen_using generate' -l profile -x -d 'only this profile of the configuration'
complete -c cdigen -n '_shtab_cdigen_using generate' -l naming -xka "index uuid type-index pci minor card" -d 'name devices by index, uuid, type-index, pci, minor, card (repeat it; default: the vendor'"'"'s own)'
complete -c cdigen -n '_shtab_cdigen_using generate' -l target -xka "apptainer-1.5 buildkit-0.20 buildkit-0.21 buildkit-0.28 containerd-1.7 containerd-2.0 containerd-2.1 containerd-2.2 cri-o-1.24 cri-o-1.25 cri-o-1.26 cri-o-1.27 cri-o-1.28 cri-o-1.29 cri-o-1.30 cri-o-1.31 cri-o-1.33 cri-o-1.35 docker-25.0 docker-27.5 docker-28.1 docker-29.7 nerdctl-2.1 podman-4.1 podman-4.3 podman-4.4 podman-4.5 podman-4.7 podman-4.8 podman-5.1 podman-5.2 podman-5.5 podman-6.0" -d 'make it fit a runtime, such as podman-4.3 or containerd-1.7.24; without a patch level the oldest of the series is meant; repeat it, the strictest counts'
complete -c cdigen -n '_shtab_cdigen_using generate' -l layout -xka "auto files view hwcaps" -d 'how the driver'"'"'s files reach containers (default: the profile'"'"'s, which is auto)'
complete -c cdigen -n '_shtab_cdigen_using generate' -l hook -xka "auto none cdigen nvidia" -d 'what runs when a container starts (default: the profile'"'"'s, which is auto)'
complete -c cdigen -n '_shtab_cdigen_using generate' -l container-driver-root -xka "(__fish_complete_directories)" -d 'containers get the driver'"'"'s files below DIR'
complete -c cdigen -n '_shtab_cdigen_using generate' -l spec-dir -xka "(__fish_complete_directories)" -d 'a spec directory instead of the default ones; repeat it, the last has priority'
complete -c cdigen -n '_shtab_cdigen_using generate' -l config -xka "(__fish_complete_path (commandline -ct))" -d 'the configuration (default: /etc/cdigen/config.yaml)'
complete -c cdigen -n '_shtab_cdigen_using generate' -l root -xka "(__fish_complete_directories)" -d 'pretend that the folder DIR is the host'
complete -c cdigen -n '_shtab_cdigen_using generate' -l vendor -xka "nvidia amd intel" -d 'only this vendor: nvidia, amd, intel, or one that another package adds'
complete -c cdigen -n '_shtab_cdigen_using generate' -l driver-root -xka "(__fish_complete_directories)" -d 'the driver'"'"'s files lie below DIR (a driver container)'
complete -c cdigen -n '_shtab_cdigen_using generate' -l dev-root -xka "(__fish_complete_directories)" -d 'the device nodes lie below DIR'
complete -c cdigen -n '_shtab_cdigen_using generate' -l library-search-path -xka "(__fish_complete_directories)" -d 'look for libraries only here'
complete -c cdigen -n '_shtab_cdigen_using generate' -l config-search-path -xka "(__fish_complete_directories)" -d 'look for data files only here'
complete -c cdigen -n '_shtab_cdigen_using generate' -l mode -xka "auto gpu wsl csv management" -d 'what the host is taken for (default: auto)'
complete -c cdigen -n '_shtab_cdigen_using generate' -l nvml -xka "auto off" -d 'whether NVML is asked for what /proc and /sys lack'
complete -c cdigen -n '_shtab_cdigen_using generate' -l inventory -xka "(__fish_complete_path (commandline -ct))" -d 'an inventory ('"'"'cdigen inspect --json'"'"') instead of a host'
complete -c cdigen -n '_shtab_cdigen_using generate' -l strict -d 'fail if any requested vendor has nothing or is not complete'
complete -c cdigen -n '_shtab_cdigen_using generate' -l json -d 'print one JSON document and nothing else on stdout'
complete -c cdigen -n '_shtab_cdigen_using generate' -s v -l verbose -d 'say more on stderr'
complete -c cdigen -n '_shtab_cdigen_using generate' -s q -l quiet -d 'say nothing but errors on stderr'
complete -c cdigen -n '_shtab_cdigen_using; and test $_shtab_cdigen_npos -eq 0' -a inspect -d 'Show what was looked for on this host, and what was found.'
complete -c cdigen -n '_shtab_cdigen_using inspect' -s h -l help -d 'show this help message and exit'
complete -c cdigen -n '_shtab_cdigen_using inspect' -l kind -xka "(_cdigen_kinds)" -d 'only this kind, such as nvidia.com/gpu'
complete -c cdigen -n '_shtab_cdigen_using inspect' -l profile -x -d 'only this profile of the configuration'
complete -c cdigen -n '_shtab_cdigen_using inspect' -l naming -xka "index uuid type-index pci minor card" -d 'name devices by index, uuid, type-index, pci, minor, card (repeat it; default: the vendor'"'"'s own)'
complete -c cdigen -n '_shtab_cdigen_using inspect' -l target -xka "apptainer-1.5 buildkit-0.20 buildkit-0.21 buildkit-0.28 containerd-1.7 containerd-2.0 containerd-2.1 containerd-2.2 cri-o-1.24 cri-o-1.25 cri-o-1.26 cri-o-1.27 cri-o-1.28 cri-o-1.29 cri-o-1.30 cri-o-1.31 cri-o-1.33 cri-o-1.35 docker-25.0 docker-27.5 docker-28.1 docker-29.7 nerdctl-2.1 podman-4.1 podman-4.3 podman-4.4 podman-4.5 podman-4.7 podman-4.8 podman-5.1 podman-5.2 podman-5.5 podman-6.0" -d 'make it fit a runtime, such as podman-4.3 or containerd-1.7.24; without a patch level the oldest of the series is meant; repeat it, the strictest counts'
complete -c cdigen -n '_shtab_cdigen_using inspect' -l layout -xka "auto files view hwcaps" -d 'how the driver'"'"'s files reach containers (default: the profile'"'"'s, which is auto)'
complete -c cdigen -n '_shtab_cdigen_using inspect' -l hook -xka "auto none cdigen nvidia" -d 'what runs when a container starts (default: the profile'"'"'s, which is auto)'
complete -c cdigen -n '_shtab_cdigen_using inspect' -l container-driver-root -xka "(__fish_complete_directories)" -d 'containers get the driver'"'"'s files below DIR'
complete -c cdigen -n '_shtab_cdigen_using inspect' -l spec-dir -xka "(__fish_complete_directories)" -d 'a spec directory instead of the default ones; repeat it, the last has priority'
complete -c cdigen -n '_shtab_cdigen_using inspect' -l config -xka "(__fish_complete_path (commandline -ct))" -d 'the configuration (default: /etc/cdigen/config.yaml)'
complete -c cdigen -n '_shtab_cdigen_using inspect' -l root -xka "(__fish_complete_directories)" -d 'pretend that the folder DIR is the host'
complete -c cdigen -n '_shtab_cdigen_using inspect' -l vendor -xka "nvidia amd intel" -d 'only this vendor: nvidia, amd, intel, or one that another package adds'
complete -c cdigen -n '_shtab_cdigen_using inspect' -l driver-root -xka "(__fish_complete_directories)" -d 'the driver'"'"'s files lie below DIR (a driver container)'
complete -c cdigen -n '_shtab_cdigen_using inspect' -l dev-root -xka "(__fish_complete_directories)" -d 'the device nodes lie below DIR'
complete -c cdigen -n '_shtab_cdigen_using inspect' -l library-search-path -xka "(__fish_complete_directories)" -d 'look for libraries only here'
complete -c cdigen -n '_shtab_cdigen_using inspect' -l config-search-path -xka "(__fish_complete_directories)" -d 'look for data files only here'
complete -c cdigen -n '_shtab_cdigen_using inspect' -l mode -xka "auto gpu wsl csv management" -d 'what the host is taken for (default: auto)'
complete -c cdigen -n '_shtab_cdigen_using inspect' -l nvml -xka "auto off" -d 'whether NVML is asked for what /proc and /sys lack'
complete -c cdigen -n '_shtab_cdigen_using inspect' -l inventory -xka "(__fish_complete_path (commandline -ct))" -d 'an inventory ('"'"'cdigen inspect --json'"'"') instead of a host'
complete -c cdigen -n '_shtab_cdigen_using inspect' -l strict -d 'fail if any requested vendor has nothing or is not complete'
complete -c cdigen -n '_shtab_cdigen_using inspect' -l json -d 'print one JSON document and nothing else on stdout'
complete -c cdigen -n '_shtab_cdigen_using inspect' -s v -l verbose -d 'say more on stderr'
complete -c cdigen -n '_shtab_cdigen_using inspect' -s q -l quiet -d 'say nothing but errors on stderr'
complete -c cdigen -n '_shtab_cdigen_using; and test $_shtab_cdigen_npos -eq 0' -a list -d 'List the devices that a container runtime finds.'
complete -c cdigen -n '_shtab_cdigen_using list' -s h -l help -d 'show this help message and exit'
complete -c cdigen -n '_shtab_cdigen_using list' -l kind -xka "(_cdigen_kinds)" -d 'only this kind, such as nvidia.com/gpu'
complete -c cdigen -n '_shtab_cdigen_using list' -l config -xka "(__fish_complete_path (commandline -ct))" -d 'the configuration (default: /etc/cdigen/config.yaml)'
complete -c cdigen -n '_shtab_cdigen_using list' -l root -xka "(__fish_complete_directories)" -d 'pretend that the folder DIR is the host'
complete -c cdigen -n '_shtab_cdigen_using list' -l spec-dir -xka "(__fish_complete_directories)" -d 'a spec directory instead of the default ones; repeat it, the last has priority'
complete -c cdigen -n '_shtab_cdigen_using list' -l json -d 'print one JSON document and nothing else on stdout'
complete -c cdigen -n '_shtab_cdigen_using list' -s v -l verbose -d 'say more on stderr'
complete -c cdigen -n '_shtab_cdigen_using list' -s q -l quiet -d 'say nothing but errors on stderr'
complete -c cdigen -n '_shtab_cdigen_using; and test $_shtab_cdigen_npos -eq 0' -a nri -d 'Run as an NRI plugin, which gives containers the devices that they ask for.'
complete -c cdigen -n '_shtab_cdigen_using nri' -s h -l help -d 'show this help message and exit'
complete -c cdigen -n '_shtab_cdigen_using nri' -l socket -x -d 'where the runtime listens for plugins'
complete -c cdigen -n '_shtab_cdigen_using nri' -l index -x -d 'the place among plugins, 00 to 99 (default: 20)'
complete -c cdigen -n '_shtab_cdigen_using nri' -l name -x -d 'the plugin'"'"'s name there (default: cdigen)'
complete -c cdigen -n '_shtab_cdigen_using nri' -l run-dir -xka "(__fish_complete_directories)" -d 'where status and HTTP socket are kept'
complete -c cdigen -n '_shtab_cdigen_using nri' -l config -xka "(__fish_complete_path (commandline -ct))" -d 'the configuration (default: /etc/cdigen/config.yaml)'
complete -c cdigen -n '_shtab_cdigen_using nri' -l root -xka "(__fish_complete_directories)" -d 'pretend that the folder DIR is the host'
complete -c cdigen -n '_shtab_cdigen_using nri' -l spec-dir -xka "(__fish_complete_directories)" -d 'a spec directory instead of the default ones; repeat it, the last has priority'
complete -c cdigen -n '_shtab_cdigen_using nri' -l json -d 'print one JSON document and nothing else on stdout'
complete -c cdigen -n '_shtab_cdigen_using nri' -s v -l verbose -d 'say more on stderr'
complete -c cdigen -n '_shtab_cdigen_using nri' -s q -l quiet -d 'say nothing but errors on stderr'
complete -c cdigen -n '_shtab_cdigen_using; and test $_shtab_cdigen_npos -eq 0' -a prune -d 'Remove the driver views that no spec and no container uses.'
complete -c cdigen -n '_shtab_cdigen_using prune' -s h -l help -d 'show this help message and exit'
complete -c cdigen -n '_shtab_cdigen_using prune' -l dry-run -d 'remove nothing, only say what would be'
complete -c cdigen -n '_shtab_cdigen_using prune' -l config -xka "(__fish_complete_path (commandline -ct))" -d 'the configuration (default: /etc/cdigen/config.yaml)'
complete -c cdigen -n '_shtab_cdigen_using prune' -l root -xka "(__fish_complete_directories)" -d 'pretend that the folder DIR is the host'
complete -c cdigen -n '_shtab_cdigen_using prune' -l spec-dir -xka "(__fish_complete_directories)" -d 'look here as well for specs that name views, beside the default and configured directories'
complete -c cdigen -n '_shtab_cdigen_using prune' -l json -d 'print one JSON document and nothing else on stdout'
complete -c cdigen -n '_shtab_cdigen_using prune' -s v -l verbose -d 'say more on stderr'
complete -c cdigen -n '_shtab_cdigen_using prune' -s q -l quiet -d 'say nothing but errors on stderr'
complete -c cdigen -n '_shtab_cdigen_using; and test $_shtab_cdigen_npos -eq 0' -a resolve -d 'Show which devices a container would get from the NRI plugin, and why.'
complete -c cdigen -n '_shtab_cdigen_using resolve' -s h -l help -d 'show this help message and exit'
complete -c cdigen -n '_shtab_cdigen_using resolve' -l env -x -d 'a variable; repeat it'
complete -c cdigen -n '_shtab_cdigen_using resolve' -l annotation -x -d 'an annotation of its pod; repeat it'
complete -c cdigen -n '_shtab_cdigen_using resolve' -l label -x -d 'a label of its pod; repeat it'
complete -c cdigen -n '_shtab_cdigen_using resolve' -l namespace -x -d 'the pod'"'"'s (default: default)'
complete -c cdigen -n '_shtab_cdigen_using resolve' -l runtime-handler -x -d 'the pod'"'"'s (default: none)'
complete -c cdigen -n '_shtab_cdigen_using resolve' -l container -x -d 'the container'"'"'s own name'
complete -c cdigen -n '_shtab_cdigen_using resolve' -l device-node -x -d 'a device node that it has already; repeat it'
complete -c cdigen -n '_shtab_cdigen_using resolve' -l cdi-device -x -d 'a CDI device that it has already; repeat it'
complete -c cdigen -n '_shtab_cdigen_using resolve' -l config -xka "(__fish_complete_path (commandline -ct))" -d 'the configuration (default: /etc/cdigen/config.yaml)'
complete -c cdigen -n '_shtab_cdigen_using resolve' -l root -xka "(__fish_complete_directories)" -d 'pretend that the folder DIR is the host'
complete -c cdigen -n '_shtab_cdigen_using resolve' -l spec-dir -xka "(__fish_complete_directories)" -d 'a spec directory instead of the default ones; repeat it, the last has priority'
complete -c cdigen -n '_shtab_cdigen_using resolve' -l run-dir -xka "(__fish_complete_directories)" -d 'where the daemon keeps its inventory'
complete -c cdigen -n '_shtab_cdigen_using resolve' -l json -d 'print one JSON document and nothing else on stdout'
complete -c cdigen -n '_shtab_cdigen_using resolve' -s v -l verbose -d 'say more on stderr'
complete -c cdigen -n '_shtab_cdigen_using resolve' -s q -l quiet -d 'say nothing but errors on stderr'
complete -c cdigen -n '_shtab_cdigen_using; and test $_shtab_cdigen_npos -eq 0' -a run -d 'Run as a daemon that keeps the specs true.'
complete -c cdigen -n '_shtab_cdigen_using run' -s h -l help -d 'show this help message and exit'
complete -c cdigen -n '_shtab_cdigen_using run' -l run-dir -xka "(__fish_complete_directories)" -d 'where status and sockets are kept'
complete -c cdigen -n '_shtab_cdigen_using run' -l kind -xka "(_cdigen_kinds)" -d 'only this kind, such as nvidia.com/gpu'
complete -c cdigen -n '_shtab_cdigen_using run' -l profile -x -d 'only this profile of the configuration'
complete -c cdigen -n '_shtab_cdigen_using run' -l naming -xka "index uuid type-index pci minor card" -d 'name devices by index, uuid, type-index, pci, minor, card (repeat it; default: the vendor'"'"'s own)'
complete -c cdigen -n '_shtab_cdigen_using run' -l target -xka "apptainer-1.5 buildkit-0.20 buildkit-0.21 buildkit-0.28 containerd-1.7 containerd-2.0 containerd-2.1 containerd-2.2 cri-o-1.24 cri-o-1.25 cri-o-1.26 cri-o-1.27 cri-o-1.28 cri-o-1.29 cri-o-1.30 cri-o-1.31 cri-o-1.33 cri-o-1.35 docker-25.0 docker-27.5 docker-28.1 docker-29.7 nerdctl-2.1 podman-4.1 podman-4.3 podman-4.4 podman-4.5 podman-4.7 podman-4.8 podman-5.1 podman-5.2 podman-5.5 podman-6.0" -d 'make it fit a runtime, such as podman-4.3 or containerd-1.7.24; without a patch level the oldest of the series is meant; repeat it, the strictest counts'
complete -c cdigen -n '_shtab_cdigen_using run' -l layout -xka "auto files view hwcaps" -d 'how the driver'"'"'s files reach containers (default: the profile'"'"'s, which is auto)'
complete -c cdigen -n '_shtab_cdigen_using run' -l hook -xka "auto none cdigen nvidia" -d 'what runs when a container starts (default: the profile'"'"'s, which is auto)'
complete -c cdigen -n '_shtab_cdigen_using run' -l container-driver-root -xka "(__fish_complete_directories)" -d 'containers get the driver'"'"'s files below DIR'
complete -c cdigen -n '_shtab_cdigen_using run' -l spec-dir -xka "(__fish_complete_directories)" -d 'a spec directory instead of the default ones; repeat it, the last has priority'
complete -c cdigen -n '_shtab_cdigen_using run' -l config -xka "(__fish_complete_path (commandline -ct))" -d 'the configuration (default: /etc/cdigen/config.yaml)'
complete -c cdigen -n '_shtab_cdigen_using run' -l root -xka "(__fish_complete_directories)" -d 'pretend that the folder DIR is the host'
complete -c cdigen -n '_shtab_cdigen_using run' -l vendor -xka "nvidia amd intel" -d 'only this vendor: nvidia, amd, intel, or one that another package adds'
complete -c cdigen -n '_shtab_cdigen_using run' -l driver-root -xka "(__fish_complete_directories)" -d 'the driver'"'"'s files lie below DIR (a driver container)'
complete -c cdigen -n '_shtab_cdigen_using run' -l dev-root -xka "(__fish_complete_directories)" -d 'the device nodes lie below DIR'
complete -c cdigen -n '_shtab_cdigen_using run' -l library-search-path -xka "(__fish_complete_directories)" -d 'look for libraries only here'
complete -c cdigen -n '_shtab_cdigen_using run' -l config-search-path -xka "(__fish_complete_directories)" -d 'look for data files only here'
complete -c cdigen -n '_shtab_cdigen_using run' -l mode -xka "auto gpu wsl csv management" -d 'what the host is taken for (default: auto)'
complete -c cdigen -n '_shtab_cdigen_using run' -l nvml -xka "auto off" -d 'whether NVML is asked for what /proc and /sys lack'
complete -c cdigen -n '_shtab_cdigen_using run' -l strict -d 'fail if any requested vendor has nothing or is not complete'
complete -c cdigen -n '_shtab_cdigen_using run' -l json -d 'print one JSON document and nothing else on stdout'
complete -c cdigen -n '_shtab_cdigen_using run' -s v -l verbose -d 'say more on stderr'
complete -c cdigen -n '_shtab_cdigen_using run' -s q -l quiet -d 'say nothing but errors on stderr'
complete -c cdigen -n '_shtab_cdigen_using; and test $_shtab_cdigen_npos -eq 0' -a status -d 'Show how the daemon and the host stand.'
complete -c cdigen -n '_shtab_cdigen_using status' -s h -l help -d 'show this help message and exit'
complete -c cdigen -n '_shtab_cdigen_using status' -l config -xka "(__fish_complete_path (commandline -ct))" -d 'the configuration (default: /etc/cdigen/config.yaml)'
complete -c cdigen -n '_shtab_cdigen_using status' -l root -xka "(__fish_complete_directories)" -d 'pretend that the folder DIR is the host'
complete -c cdigen -n '_shtab_cdigen_using status' -l run-dir -xka "(__fish_complete_directories)" -d 'where the daemon keeps its status'
complete -c cdigen -n '_shtab_cdigen_using status' -l json -d 'print one JSON document and nothing else on stdout'
complete -c cdigen -n '_shtab_cdigen_using status' -s v -l verbose -d 'say more on stderr'
complete -c cdigen -n '_shtab_cdigen_using status' -s q -l quiet -d 'say nothing but errors on stderr'
complete -c cdigen -n '_shtab_cdigen_using; and test $_shtab_cdigen_npos -eq 0' -a validate -d 'Check spec files as the runtimes'"'"' loaders do.'
complete -c cdigen -n '_shtab_cdigen_using validate' -s h -l help -d 'show this help message and exit'
complete -c cdigen -n '_shtab_cdigen_using validate' -l host -d 'also hold it against this host (see --root)'
complete -c cdigen -n '_shtab_cdigen_using validate' -l target -xka "apptainer-1.5 buildkit-0.20 buildkit-0.21 buildkit-0.28 containerd-1.7 containerd-2.0 containerd-2.1 containerd-2.2 cri-o-1.24 cri-o-1.25 cri-o-1.26 cri-o-1.27 cri-o-1.28 cri-o-1.29 cri-o-1.30 cri-o-1.31 cri-o-1.33 cri-o-1.35 docker-25.0 docker-27.5 docker-28.1 docker-29.7 nerdctl-2.1 podman-4.1 podman-4.3 podman-4.4 podman-4.5 podman-4.7 podman-4.8 podman-5.1 podman-5.2 podman-5.5 podman-6.0" -d 'fail unless this runtime loads it: podman-4.9, containerd-1.7.24; may be repeated'
complete -c cdigen -n '_shtab_cdigen_using validate' -l loader -xka "0.5.2 0.5.3 0.5.4 0.6.0 0.6.1 0.6.2 0.7.0 0.7.1 0.7.2 0.8.0 0.8.1 1.0.0 1.0.1 1.1.0 main" -d 'fail unless this version of the CDI library loads it: 0.8.0, main; may be repeated'
complete -c cdigen -n '_shtab_cdigen_using validate' -l config -xka "(__fish_complete_path (commandline -ct))" -d 'the configuration (default: /etc/cdigen/config.yaml)'
complete -c cdigen -n '_shtab_cdigen_using validate' -l root -xka "(__fish_complete_directories)" -d 'pretend that the folder DIR is the host'
complete -c cdigen -n '_shtab_cdigen_using validate' -l json -d 'print one JSON document and nothing else on stdout'
complete -c cdigen -n '_shtab_cdigen_using validate' -s v -l verbose -d 'say more on stderr'
complete -c cdigen -n '_shtab_cdigen_using validate' -s q -l quiet -d 'say nothing but errors on stderr'
complete -c cdigen -n '_shtab_cdigen_using validate; and test $_shtab_cdigen_npos -ge 0' -ka "(__fish_complete_path (commandline -ct))" -d 'a spec file, or a folder of .json and .yaml files; '"'"'-'"'"' is standard input'
complete -c cdigen -n '_shtab_cdigen_using; and test $_shtab_cdigen_npos -eq 0' -a withdraw -d 'Remove the specs that cdigen wrote, on purpose.'
complete -c cdigen -n '_shtab_cdigen_using withdraw' -s h -l help -d 'show this help message and exit'
complete -c cdigen -n '_shtab_cdigen_using withdraw' -l dry-run -d 'remove nothing, only say what would be'
complete -c cdigen -n '_shtab_cdigen_using withdraw' -l kind -xka "(_cdigen_kinds)" -d 'only this kind, such as nvidia.com/gpu'
complete -c cdigen -n '_shtab_cdigen_using withdraw' -l vendor -xka "nvidia amd intel" -d 'only this vendor'"'"'s: nvidia, amd, intel, or one that another package adds'
complete -c cdigen -n '_shtab_cdigen_using withdraw' -l with-hook -d 'only specs that run cdigen'"'"'s start-up hook: without it no container starts with them'
complete -c cdigen -n '_shtab_cdigen_using withdraw' -l spec-dir -xka "(__fish_complete_directories)" -d 'a spec directory instead of the default ones; repeat it, the last has priority'
complete -c cdigen -n '_shtab_cdigen_using withdraw' -l config -xka "(__fish_complete_path (commandline -ct))" -d 'the configuration (default: /etc/cdigen/config.yaml)'
complete -c cdigen -n '_shtab_cdigen_using withdraw' -l root -xka "(__fish_complete_directories)" -d 'pretend that the folder DIR is the host'
complete -c cdigen -n '_shtab_cdigen_using withdraw' -l run-dir -xka "(__fish_complete_directories)" -d 'where the daemon would keep its status'
complete -c cdigen -n '_shtab_cdigen_using withdraw' -l json -d 'print one JSON document and nothing else on stdout'
complete -c cdigen -n '_shtab_cdigen_using withdraw' -s v -l verbose -d 'say more on stderr'
complete -c cdigen -n '_shtab_cdigen_using withdraw' -s q -l quiet -d 'say nothing but errors on stderr'
