# bash completion for cdigen(8); a test holds it against the command's own options.

_cdigen_kinds() {
	cdigen list --json 2>/dev/null | grep -o '"kind": "[^"]*"' | cut -d'"' -f4 | sort -u
}

_cdigen() {
	local commands="diff generate inspect list prune run status validate"
	local output="--help --json --quiet --verbose"
	local root="--config --root"
	local wishes="--container-driver-root --hook --kind --layout --naming --profile --target"
	local discovery="$root --config-search-path --dev-root --driver-root --inventory --library-search-path --mode --nvml --strict --vendor"
	local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}
	local command="" word words=""
	COMPREPLY=()

	for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
		[[ " $commands " == *" $word "* ]] && command=$word && break
	done

	case $previous in
	--root | --driver-root | --dev-root | --container-driver-root | --library-search-path | --config-search-path | --spec-dir | --output-dir | --run-dir)
		mapfile -t COMPREPLY < <(compgen -d -- "$current")
		return
		;;
	--config | --inventory | --output)
		mapfile -t COMPREPLY < <(compgen -f -- "$current")
		return
		;;
	--format) words="json yaml" ;;
	--hook) words="auto cdigen none nvidia" ;;
	--kind) words=$(_cdigen_kinds) ;;
	--layout) words="auto files hwcaps view" ;;
	--mode) words="auto csv gpu management wsl" ;;
	--naming) words="index minor pci type-index uuid" ;;
	--nvml) words="auto off" ;;
	--profile) return ;;
	--target) words="containerd-1.7 containerd-2.0 crio-1.30 docker-25.0 podman-4.3 podman-5.0" ;;
	--vendor) words="nvidia" ;;
	*)
		case $command in
		"") words="$commands --help --version" ;;
		diff) words="$output $wishes $discovery --spec-dir" ;;
		generate) words="$output $wishes $discovery --format --output --output-dir --replace-foreign --spec-dir --withdraw --write" ;;
		inspect) words="$output $wishes $discovery --spec-dir" ;;
		list) words="$output $root --kind --spec-dir" ;;
		prune) words="$output $root --dry-run --spec-dir" ;;
		run) words="$output $wishes $discovery --run-dir --spec-dir" ;;
		status) words="$output $root --run-dir" ;;
		validate)
			words="$output $root --host"
			[[ $current == -* ]] || {
				mapfile -t COMPREPLY < <(compgen -f -- "$current")
				return
			}
			;;
		esac
		;;
	esac
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}

complete -F _cdigen cdigen
