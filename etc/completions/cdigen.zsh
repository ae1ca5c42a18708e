#compdef cdigen
# zsh completion for cdigen(8); a test holds it against the command's own options.

_cdigen() {
	local context state state_descr line
	typeset -A opt_args
	local -a commands output root wishes discovery specdir
	commands=(
		'diff:show what is on disk against what the host would give now'
		'generate:print or write the CDI specs of this host'
		'inspect:show what was looked for on this host, and what was found'
		'list:list the devices that a container runtime finds'
		'prune:remove the driver views that no spec and no container uses'
		'run:keep the specs of this host true (the daemon)'
		'status:show what the daemon did last, and how the host stands'
		'validate:check spec files as the runtimes'\'' loaders do'
	)
	output=(
		'(- *)'{-h,--help}'[show help]'
		'--json[print one JSON document]'
		'(-q --quiet -v --verbose)'{-v,--verbose}'[say more on stderr]'
		'(-q --quiet -v --verbose)'{-q,--quiet}'[say nothing but errors]'
	)
	root=(
		'--config[the configuration]:file:_files'
		'--root[the folder that is the host]:folder:_directories'
	)
	specdir=('*--spec-dir[a spec directory]:folder:_directories')
	wishes=(
		'--container-driver-root[where containers get the driver'\''s files]:folder:_directories'
		'--hook[what runs when a container starts]:hook:(auto cdigen none nvidia)'
		'*--kind[only this kind]:kind:'
		'--layout[how the driver'\''s files reach containers]:layout:(auto files hwcaps view)'
		'*--naming[how devices are named]:naming:(index minor pci type-index uuid)'
		'*--profile[only this profile]:profile:'
		'*--target[a runtime that it has to fit]:runtime:(containerd-1.7 containerd-2.0 crio-1.30 docker-25.0 podman-4.3 podman-5.0)'
	)
	discovery=(
		'*--config-search-path[look for data files only here]:folder:_directories'
		'--dev-root[the device nodes lie below it]:folder:_directories'
		'--driver-root[the driver'\''s files lie below it]:folder:_directories'
		'--inventory[an inventory instead of a host]:file:_files'
		'*--library-search-path[look for libraries only here]:folder:_directories'
		'--mode[what the host is taken for]:mode:(auto csv gpu management wsl)'
		'--nvml[whether NVML is asked]:library:(auto off)'
		'--strict[fail if any vendor is not complete]'
		'*--vendor[only this vendor]:vendor:(nvidia)'
	)

	_arguments -C '(- *)'{-h,--help}'[show help]' '(- *)'{-V,--version}'[show the version]' \
		'1:command:->command' '*::argument:->argument' && return

	case $state in
	command) _describe command commands ;;
	argument)
		case $line[1] in
		diff | inspect) _arguments $output $root $specdir $wishes $discovery ;;
		generate)
			_arguments $output $root $specdir $wishes $discovery \
				'--format[of what is printed]:format:(json yaml)' \
				'(--output-dir --write)--output[write into a file]:file:_files' \
				'(--output --write)--output-dir[write one file per kind into a folder]:folder:_directories' \
				'(--output --output-dir)--write[write into the last spec directory]' \
				'--replace-foreign[move a clashing spec of others aside]' \
				'--withdraw[remove our specs of what is gone]'
			;;
		list) _arguments $output $root $specdir '*--kind[only this kind]:kind:' ;;
		prune) _arguments $output $root $specdir '--dry-run[remove nothing]' ;;
		run) _arguments $output $root $specdir $wishes $discovery '--run-dir[where status and sockets are kept]:folder:_directories' ;;
		status) _arguments $output $root '--run-dir[where the daemon keeps its status]:folder:_directories' ;;
		validate) _arguments $output $root '--host[also hold it against this host]' '*:spec file:_files' ;;
		esac
		;;
	esac
}

_cdigen "$@"
