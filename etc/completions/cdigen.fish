# fish completion for cdigen(8); a test holds it against the command's own options.

set -l commands diff generate inspect list prune run status validate
set -l discovering diff generate inspect run

complete -c cdigen -f
complete -c cdigen -s h -l help -d 'Show help'
complete -c cdigen -n "not __fish_seen_subcommand_from $commands" -s V -l version -d 'Show the version'

complete -c cdigen -n "not __fish_seen_subcommand_from $commands" -a diff -d 'What is on disk against what the host would give'
complete -c cdigen -n "not __fish_seen_subcommand_from $commands" -a generate -d 'Print or write the CDI specs of this host'
complete -c cdigen -n "not __fish_seen_subcommand_from $commands" -a inspect -d 'What was looked for, and what was found'
complete -c cdigen -n "not __fish_seen_subcommand_from $commands" -a list -d 'The devices that a runtime finds'
complete -c cdigen -n "not __fish_seen_subcommand_from $commands" -a prune -d 'Remove driver views that nobody uses'
complete -c cdigen -n "not __fish_seen_subcommand_from $commands" -a run -d 'Keep the specs true (the daemon)'
complete -c cdigen -n "not __fish_seen_subcommand_from $commands" -a status -d 'What the daemon did last'
complete -c cdigen -n "not __fish_seen_subcommand_from $commands" -a validate -d 'Check spec files'

# Every command.
complete -c cdigen -n "__fish_seen_subcommand_from $commands" -l json -d 'Print one JSON document'
complete -c cdigen -n "__fish_seen_subcommand_from $commands" -s v -l verbose -d 'Say more'
complete -c cdigen -n "__fish_seen_subcommand_from $commands" -s q -l quiet -d 'Say nothing but errors'
complete -c cdigen -n "__fish_seen_subcommand_from $commands" -l config -r -F -d 'The configuration'
complete -c cdigen -n "__fish_seen_subcommand_from $commands" -l root -x -a '(__fish_complete_directories)' -d 'The folder that is the host'

# Those that look at the host.
complete -c cdigen -n "__fish_seen_subcommand_from $discovering" -l config-search-path -x -a '(__fish_complete_directories)' -d 'Look for data files only here'
complete -c cdigen -n "__fish_seen_subcommand_from $discovering" -l container-driver-root -x -a '(__fish_complete_directories)' -d 'Where containers get the files'
complete -c cdigen -n "__fish_seen_subcommand_from $discovering" -l dev-root -x -a '(__fish_complete_directories)' -d 'The nodes lie below it'
complete -c cdigen -n "__fish_seen_subcommand_from $discovering" -l driver-root -x -a '(__fish_complete_directories)' -d 'The files lie below it'
complete -c cdigen -n "__fish_seen_subcommand_from $discovering" -l hook -x -a 'auto cdigen none nvidia' -d 'What runs at start-up'
complete -c cdigen -n "__fish_seen_subcommand_from $discovering" -l inventory -r -F -d 'An inventory instead of a host'
complete -c cdigen -n "__fish_seen_subcommand_from $discovering" -l layout -x -a 'auto files hwcaps view' -d 'How files reach containers'
complete -c cdigen -n "__fish_seen_subcommand_from $discovering" -l library-search-path -x -a '(__fish_complete_directories)' -d 'Look for libraries only here'
complete -c cdigen -n "__fish_seen_subcommand_from $discovering" -l mode -x -a 'auto csv gpu management wsl' -d 'What the host is taken for'
complete -c cdigen -n "__fish_seen_subcommand_from $discovering" -l naming -x -a 'index minor pci type-index uuid' -d 'How devices are named'
complete -c cdigen -n "__fish_seen_subcommand_from $discovering" -l nvml -r -F -a 'auto off' -d 'Whether NVML is asked'
complete -c cdigen -n "__fish_seen_subcommand_from $discovering" -l profile -x -d 'Only this profile'
complete -c cdigen -n "__fish_seen_subcommand_from $discovering" -l strict -d 'Fail if a vendor is not complete'
complete -c cdigen -n "__fish_seen_subcommand_from $discovering" -l target -x -a 'containerd-1.7 containerd-2.0 crio-1.30 docker-25.0 podman-4.3 podman-5.0' -d 'A runtime that it has to fit'
complete -c cdigen -n "__fish_seen_subcommand_from $discovering" -l vendor -x -a nvidia -d 'Only this vendor'

complete -c cdigen -n "__fish_seen_subcommand_from $discovering list" -l kind -x -d 'Only this kind'
complete -c cdigen -n "__fish_seen_subcommand_from $discovering list prune" -l spec-dir -x -a '(__fish_complete_directories)' -d 'A spec directory'
complete -c cdigen -n "__fish_seen_subcommand_from run status" -l run-dir -x -a '(__fish_complete_directories)' -d 'Where the daemon keeps its status'
complete -c cdigen -n "__fish_seen_subcommand_from prune" -l dry-run -d 'Remove nothing'
complete -c cdigen -n "__fish_seen_subcommand_from validate" -l host -d 'Also hold it against this host'
complete -c cdigen -n "__fish_seen_subcommand_from validate" -F

complete -c cdigen -n "__fish_seen_subcommand_from generate" -l format -x -a 'json yaml' -d 'Of what is printed'
complete -c cdigen -n "__fish_seen_subcommand_from generate" -l output -r -F -d 'Write into a file'
complete -c cdigen -n "__fish_seen_subcommand_from generate" -l output-dir -x -a '(__fish_complete_directories)' -d 'Write one file per kind'
complete -c cdigen -n "__fish_seen_subcommand_from generate" -l write -d 'Write into the last spec directory'
complete -c cdigen -n "__fish_seen_subcommand_from generate" -l replace-foreign -d 'Move a clashing spec aside'
complete -c cdigen -n "__fish_seen_subcommand_from generate" -l withdraw -d 'Remove our specs of what is gone'
