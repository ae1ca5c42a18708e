# Made by 'make generated' of the commands' own parsers, with https://github.com/tqdm/shtab: not to be edited.

_shtab_cdigen_subparsers=(config configure diff docker-args doctor extender generate health inspect install-service kubelet list nri prune resolve run status topology validate withdraw)

_shtab_cdigen_config_option_strings=(-h --help --config --root --json -v --verbose -q --quiet)
_shtab_cdigen_configure_option_strings=(-h --help --dry-run --undo --nri --nri-required --restart --spec-dir --config --root --json -v --verbose -q --quiet)
_shtab_cdigen_diff_option_strings=(-h --help --kind --profile --naming --target --layout --hook --container-driver-root --spec-dir --config --root --vendor --driver-root --dev-root --library-search-path --binary-search-path --config-search-path --mode --nvml --strict --json -v --verbose -q --quiet)
_shtab_cdigen_docker_args_option_strings=(-h --help --form --config --root --vendor --driver-root --dev-root --library-search-path --binary-search-path --config-search-path --mode --nvml --inventory --strict --json -v --verbose -q --quiet)
_shtab_cdigen_doctor_option_strings=(-h --help --for --device --user --migrate --bundle --mask --config --root --vendor --driver-root --dev-root --library-search-path --binary-search-path --config-search-path --mode --nvml --strict --json -v --verbose -q --quiet)
_shtab_cdigen_extender_option_strings=(-h --help --kubeconfig --namespace --resource --count-resource --strategy --node-strategy --listen --tls-cert --tls-key --client-ca --client-name --token-file --run-dir --json -v --verbose -q --quiet)
_shtab_cdigen_generate_option_strings=(-h --help --write --output --output-dir --format --replace-foreign --withdraw --kind --profile --naming --target --layout --hook --container-driver-root --spec-dir --config --root --vendor --driver-root --dev-root --library-search-path --binary-search-path --config-search-path --mode --nvml --inventory --strict --json -v --verbose -q --quiet)
_shtab_cdigen_health_option_strings=(-h --help --mark --reason --clear --config --root --json -v --verbose -q --quiet)
_shtab_cdigen_inspect_option_strings=(-h --help --figures --kind --profile --naming --target --layout --hook --container-driver-root --spec-dir --config --root --vendor --driver-root --dev-root --library-search-path --binary-search-path --config-search-path --mode --nvml --inventory --strict --json -v --verbose -q --quiet)
_shtab_cdigen_install_service_option_strings=(-h --help --remove --no-start --prefix --destdir --json -v --verbose -q --quiet)
_shtab_cdigen_kubelet_option_strings=(-h --help --kubelet-dir --kubeconfig --node-name --run-dir --standby --daemon-dir --config --root --spec-dir --json -v --verbose -q --quiet)
_shtab_cdigen_list_option_strings=(-h --help --kind --config --root --spec-dir --json -v --verbose -q --quiet)
_shtab_cdigen_nri_option_strings=(-h --help --socket --index --name --run-dir --standby --config --root --spec-dir --json -v --verbose -q --quiet)
_shtab_cdigen_prune_option_strings=(-h --help --dry-run --config --root --spec-dir --json -v --verbose -q --quiet)
_shtab_cdigen_resolve_option_strings=(-h --help --env --image-config --annotation --label --namespace --runtime-handler --container --mount --privileged --device-node --cdi-device --config --root --spec-dir --run-dir --json -v --verbose -q --quiet)
_shtab_cdigen_run_option_strings=(-h --help --run-dir --standby --kind --profile --naming --target --layout --hook --container-driver-root --spec-dir --config --root --vendor --driver-root --dev-root --library-search-path --binary-search-path --config-search-path --mode --nvml --strict --json -v --verbose -q --quiet)
_shtab_cdigen_status_option_strings=(-h --help --config --root --run-dir --json -v --verbose -q --quiet)
_shtab_cdigen_topology_option_strings=(-h --help --config --root --vendor --driver-root --dev-root --library-search-path --binary-search-path --config-search-path --mode --nvml --inventory --strict --svg --json -v --verbose -q --quiet)
_shtab_cdigen_validate_option_strings=(-h --help --host --target --loader --schema --config --root --json -v --verbose -q --quiet)
_shtab_cdigen_withdraw_option_strings=(-h --help --dry-run --kind --vendor --with-hook --spec-dir --config --root --run-dir --json -v --verbose -q --quiet)
_shtab_cdigen_option_strings=(-h --help -V --version)

_shtab_cdigen_config___config_COMPGEN=_shtab_compgen_files
_shtab_cdigen_config___root_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_configure___spec_dir_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_configure___config_COMPGEN=_shtab_compgen_files
_shtab_cdigen_configure___root_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_diff___kind_COMPGEN=_cdigen_kinds
_shtab_cdigen_diff___container_driver_root_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_diff___spec_dir_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_diff___config_COMPGEN=_shtab_compgen_files
_shtab_cdigen_diff___root_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_diff___driver_root_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_diff___dev_root_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_diff___library_search_path_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_diff___binary_search_path_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_diff___config_search_path_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_docker_args___config_COMPGEN=_shtab_compgen_files
_shtab_cdigen_docker_args___root_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_docker_args___driver_root_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_docker_args___dev_root_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_docker_args___library_search_path_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_docker_args___binary_search_path_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_docker_args___config_search_path_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_docker_args___inventory_COMPGEN=_shtab_compgen_files
_shtab_cdigen_doctor___device_COMPGEN=_cdigen_devices
_shtab_cdigen_doctor___user_COMPGEN=_cdigen_users
_shtab_cdigen_doctor___migrate_COMPGEN=_shtab_compgen_files
_shtab_cdigen_doctor___bundle_COMPGEN=_shtab_compgen_files
_shtab_cdigen_doctor___config_COMPGEN=_shtab_compgen_files
_shtab_cdigen_doctor___root_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_doctor___driver_root_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_doctor___dev_root_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_doctor___library_search_path_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_doctor___binary_search_path_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_doctor___config_search_path_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_extender___kubeconfig_COMPGEN=_shtab_compgen_files
_shtab_cdigen_extender___tls_cert_COMPGEN=_shtab_compgen_files
_shtab_cdigen_extender___tls_key_COMPGEN=_shtab_compgen_files
_shtab_cdigen_extender___client_ca_COMPGEN=_shtab_compgen_files
_shtab_cdigen_extender___token_file_COMPGEN=_shtab_compgen_files
_shtab_cdigen_extender___run_dir_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_generate___output_COMPGEN=_shtab_compgen_files
_shtab_cdigen_generate___output_dir_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_generate___kind_COMPGEN=_cdigen_kinds
_shtab_cdigen_generate___container_driver_root_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_generate___spec_dir_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_generate___config_COMPGEN=_shtab_compgen_files
_shtab_cdigen_generate___root_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_generate___driver_root_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_generate___dev_root_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_generate___library_search_path_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_generate___binary_search_path_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_generate___config_search_path_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_generate___inventory_COMPGEN=_shtab_compgen_files
_shtab_cdigen_health___mark_COMPGEN=_cdigen_devices
_shtab_cdigen_health___clear_COMPGEN=_cdigen_devices
_shtab_cdigen_health___config_COMPGEN=_shtab_compgen_files
_shtab_cdigen_health___root_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_inspect___kind_COMPGEN=_cdigen_kinds
_shtab_cdigen_inspect___container_driver_root_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_inspect___spec_dir_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_inspect___config_COMPGEN=_shtab_compgen_files
_shtab_cdigen_inspect___root_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_inspect___driver_root_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_inspect___dev_root_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_inspect___library_search_path_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_inspect___binary_search_path_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_inspect___config_search_path_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_inspect___inventory_COMPGEN=_shtab_compgen_files
_shtab_cdigen_install_service___prefix_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_install_service___destdir_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_kubelet___kubelet_dir_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_kubelet___kubeconfig_COMPGEN=_shtab_compgen_files
_shtab_cdigen_kubelet___run_dir_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_kubelet___daemon_dir_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_kubelet___config_COMPGEN=_shtab_compgen_files
_shtab_cdigen_kubelet___root_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_kubelet___spec_dir_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_list___kind_COMPGEN=_cdigen_kinds
_shtab_cdigen_list___config_COMPGEN=_shtab_compgen_files
_shtab_cdigen_list___root_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_list___spec_dir_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_nri___run_dir_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_nri___config_COMPGEN=_shtab_compgen_files
_shtab_cdigen_nri___root_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_nri___spec_dir_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_prune___config_COMPGEN=_shtab_compgen_files
_shtab_cdigen_prune___root_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_prune___spec_dir_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_resolve___image_config_COMPGEN=_shtab_compgen_files
_shtab_cdigen_resolve___config_COMPGEN=_shtab_compgen_files
_shtab_cdigen_resolve___root_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_resolve___spec_dir_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_resolve___run_dir_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_run___run_dir_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_run___kind_COMPGEN=_cdigen_kinds
_shtab_cdigen_run___container_driver_root_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_run___spec_dir_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_run___config_COMPGEN=_shtab_compgen_files
_shtab_cdigen_run___root_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_run___driver_root_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_run___dev_root_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_run___library_search_path_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_run___binary_search_path_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_run___config_search_path_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_status___config_COMPGEN=_shtab_compgen_files
_shtab_cdigen_status___root_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_status___run_dir_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_topology___config_COMPGEN=_shtab_compgen_files
_shtab_cdigen_topology___root_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_topology___driver_root_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_topology___dev_root_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_topology___library_search_path_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_topology___binary_search_path_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_topology___config_search_path_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_topology___inventory_COMPGEN=_shtab_compgen_files
_shtab_cdigen_topology___svg_COMPGEN=_shtab_compgen_files
_shtab_cdigen_validate_pos_0_COMPGEN=_shtab_compgen_files
_shtab_cdigen_validate___config_COMPGEN=_shtab_compgen_files
_shtab_cdigen_validate___root_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_withdraw___kind_COMPGEN=_cdigen_kinds
_shtab_cdigen_withdraw___spec_dir_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_withdraw___config_COMPGEN=_shtab_compgen_files
_shtab_cdigen_withdraw___root_COMPGEN=_shtab_compgen_dirs
_shtab_cdigen_withdraw___run_dir_COMPGEN=_shtab_compgen_dirs

_shtab_cdigen_config_pos_0_choices=(check)
_shtab_cdigen_configure_pos_0_choices=(podman docker containerd crio)
_shtab_cdigen_diff___naming_choices=(index uuid type-index pci minor card)
_shtab_cdigen_diff___target_choices=(apptainer-1.5 buildkit-0.20 buildkit-0.21 buildkit-0.28 containerd-1.7 containerd-2.0 containerd-2.1 containerd-2.2 cri-o-1.24 cri-o-1.25 cri-o-1.26 cri-o-1.27 cri-o-1.28 cri-o-1.29 cri-o-1.30 cri-o-1.31 cri-o-1.33 cri-o-1.35 docker-25.0 docker-27.5 docker-28.1 docker-29.7 nerdctl-2.1 podman-4.1 podman-4.3 podman-4.4 podman-4.5 podman-4.7 podman-4.8 podman-5.1 podman-5.2 podman-5.5 podman-6.0)
_shtab_cdigen_diff___layout_choices=(auto files view hwcaps)
_shtab_cdigen_diff___hook_choices=(auto none cdigen nvidia)
_shtab_cdigen_diff___vendor_choices=(nvidia amd intel)
_shtab_cdigen_diff___mode_choices=(auto gpu wsl csv management)
_shtab_cdigen_diff___nvml_choices=(auto off)
_shtab_cdigen_docker_args___form_choices=(cdi classic)
_shtab_cdigen_docker_args___vendor_choices=(nvidia amd intel)
_shtab_cdigen_docker_args___mode_choices=(auto gpu wsl csv management)
_shtab_cdigen_docker_args___nvml_choices=(auto off)
_shtab_cdigen_doctor___for_choices=(podman docker containerd crio kubelet)
_shtab_cdigen_doctor___vendor_choices=(nvidia amd intel)
_shtab_cdigen_doctor___mode_choices=(auto gpu wsl csv management)
_shtab_cdigen_doctor___nvml_choices=(auto off)
_shtab_cdigen_extender___strategy_choices=(binpack spread)
_shtab_cdigen_extender___node_strategy_choices=(binpack spread)
_shtab_cdigen_generate___format_choices=(json yaml)
_shtab_cdigen_generate___naming_choices=(index uuid type-index pci minor card)
_shtab_cdigen_generate___target_choices=(apptainer-1.5 buildkit-0.20 buildkit-0.21 buildkit-0.28 containerd-1.7 containerd-2.0 containerd-2.1 containerd-2.2 cri-o-1.24 cri-o-1.25 cri-o-1.26 cri-o-1.27 cri-o-1.28 cri-o-1.29 cri-o-1.30 cri-o-1.31 cri-o-1.33 cri-o-1.35 docker-25.0 docker-27.5 docker-28.1 docker-29.7 nerdctl-2.1 podman-4.1 podman-4.3 podman-4.4 podman-4.5 podman-4.7 podman-4.8 podman-5.1 podman-5.2 podman-5.5 podman-6.0)
_shtab_cdigen_generate___layout_choices=(auto files view hwcaps)
_shtab_cdigen_generate___hook_choices=(auto none cdigen nvidia)
_shtab_cdigen_generate___vendor_choices=(nvidia amd intel)
_shtab_cdigen_generate___mode_choices=(auto gpu wsl csv management)
_shtab_cdigen_generate___nvml_choices=(auto off)
_shtab_cdigen_inspect___naming_choices=(index uuid type-index pci minor card)
_shtab_cdigen_inspect___target_choices=(apptainer-1.5 buildkit-0.20 buildkit-0.21 buildkit-0.28 containerd-1.7 containerd-2.0 containerd-2.1 containerd-2.2 cri-o-1.24 cri-o-1.25 cri-o-1.26 cri-o-1.27 cri-o-1.28 cri-o-1.29 cri-o-1.30 cri-o-1.31 cri-o-1.33 cri-o-1.35 docker-25.0 docker-27.5 docker-28.1 docker-29.7 nerdctl-2.1 podman-4.1 podman-4.3 podman-4.4 podman-4.5 podman-4.7 podman-4.8 podman-5.1 podman-5.2 podman-5.5 podman-6.0)
_shtab_cdigen_inspect___layout_choices=(auto files view hwcaps)
_shtab_cdigen_inspect___hook_choices=(auto none cdigen nvidia)
_shtab_cdigen_inspect___vendor_choices=(nvidia amd intel)
_shtab_cdigen_inspect___mode_choices=(auto gpu wsl csv management)
_shtab_cdigen_inspect___nvml_choices=(auto off)
_shtab_cdigen_run___naming_choices=(index uuid type-index pci minor card)
_shtab_cdigen_run___target_choices=(apptainer-1.5 buildkit-0.20 buildkit-0.21 buildkit-0.28 containerd-1.7 containerd-2.0 containerd-2.1 containerd-2.2 cri-o-1.24 cri-o-1.25 cri-o-1.26 cri-o-1.27 cri-o-1.28 cri-o-1.29 cri-o-1.30 cri-o-1.31 cri-o-1.33 cri-o-1.35 docker-25.0 docker-27.5 docker-28.1 docker-29.7 nerdctl-2.1 podman-4.1 podman-4.3 podman-4.4 podman-4.5 podman-4.7 podman-4.8 podman-5.1 podman-5.2 podman-5.5 podman-6.0)
_shtab_cdigen_run___layout_choices=(auto files view hwcaps)
_shtab_cdigen_run___hook_choices=(auto none cdigen nvidia)
_shtab_cdigen_run___vendor_choices=(nvidia amd intel)
_shtab_cdigen_run___mode_choices=(auto gpu wsl csv management)
_shtab_cdigen_run___nvml_choices=(auto off)
_shtab_cdigen_topology___vendor_choices=(nvidia amd intel)
_shtab_cdigen_topology___mode_choices=(auto gpu wsl csv management)
_shtab_cdigen_topology___nvml_choices=(auto off)
_shtab_cdigen_validate___target_choices=(apptainer-1.5 buildkit-0.20 buildkit-0.21 buildkit-0.28 containerd-1.7 containerd-2.0 containerd-2.1 containerd-2.2 cri-o-1.24 cri-o-1.25 cri-o-1.26 cri-o-1.27 cri-o-1.28 cri-o-1.29 cri-o-1.30 cri-o-1.31 cri-o-1.33 cri-o-1.35 docker-25.0 docker-27.5 docker-28.1 docker-29.7 nerdctl-2.1 podman-4.1 podman-4.3 podman-4.4 podman-4.5 podman-4.7 podman-4.8 podman-5.1 podman-5.2 podman-5.5 podman-6.0)
_shtab_cdigen_validate___loader_choices=(0.5.2 0.5.3 0.5.4 0.6.0 0.6.1 0.6.2 0.7.0 0.7.1 0.7.2 0.8.0 0.8.1 1.0.0 1.0.1 1.1.0 main)
_shtab_cdigen_withdraw___vendor_choices=(nvidia amd intel)
_shtab_cdigen_pos_0_choices=(config configure diff docker-args doctor extender generate health inspect install-service kubelet list nri prune resolve run status topology validate withdraw)

_shtab_cdigen_config__h_nargs=0
_shtab_cdigen_config___help_nargs=0
_shtab_cdigen_config___json_nargs=0
_shtab_cdigen_config__v_nargs=0
_shtab_cdigen_config___verbose_nargs=0
_shtab_cdigen_config__q_nargs=0
_shtab_cdigen_config___quiet_nargs=0
_shtab_cdigen_configure__h_nargs=0
_shtab_cdigen_configure___help_nargs=0
_shtab_cdigen_configure___dry_run_nargs=0
_shtab_cdigen_configure___undo_nargs=0
_shtab_cdigen_configure___nri_nargs=0
_shtab_cdigen_configure___nri_required_nargs=0
_shtab_cdigen_configure___restart_nargs=0
_shtab_cdigen_configure___json_nargs=0
_shtab_cdigen_configure__v_nargs=0
_shtab_cdigen_configure___verbose_nargs=0
_shtab_cdigen_configure__q_nargs=0
_shtab_cdigen_configure___quiet_nargs=0
_shtab_cdigen_diff__h_nargs=0
_shtab_cdigen_diff___help_nargs=0
_shtab_cdigen_diff___strict_nargs=0
_shtab_cdigen_diff___json_nargs=0
_shtab_cdigen_diff__v_nargs=0
_shtab_cdigen_diff___verbose_nargs=0
_shtab_cdigen_diff__q_nargs=0
_shtab_cdigen_diff___quiet_nargs=0
_shtab_cdigen_docker_args_pos_0_nargs='*'
_shtab_cdigen_docker_args__h_nargs=0
_shtab_cdigen_docker_args___help_nargs=0
_shtab_cdigen_docker_args___strict_nargs=0
_shtab_cdigen_docker_args___json_nargs=0
_shtab_cdigen_docker_args__v_nargs=0
_shtab_cdigen_docker_args___verbose_nargs=0
_shtab_cdigen_docker_args__q_nargs=0
_shtab_cdigen_docker_args___quiet_nargs=0
_shtab_cdigen_doctor__h_nargs=0
_shtab_cdigen_doctor___help_nargs=0
_shtab_cdigen_doctor___migrate_nargs='*'
_shtab_cdigen_doctor___mask_nargs=0
_shtab_cdigen_doctor___strict_nargs=0
_shtab_cdigen_doctor___json_nargs=0
_shtab_cdigen_doctor__v_nargs=0
_shtab_cdigen_doctor___verbose_nargs=0
_shtab_cdigen_doctor__q_nargs=0
_shtab_cdigen_doctor___quiet_nargs=0
_shtab_cdigen_extender__h_nargs=0
_shtab_cdigen_extender___help_nargs=0
_shtab_cdigen_extender___json_nargs=0
_shtab_cdigen_extender__v_nargs=0
_shtab_cdigen_extender___verbose_nargs=0
_shtab_cdigen_extender__q_nargs=0
_shtab_cdigen_extender___quiet_nargs=0
_shtab_cdigen_generate__h_nargs=0
_shtab_cdigen_generate___help_nargs=0
_shtab_cdigen_generate___write_nargs=0
_shtab_cdigen_generate___replace_foreign_nargs=0
_shtab_cdigen_generate___withdraw_nargs=0
_shtab_cdigen_generate___strict_nargs=0
_shtab_cdigen_generate___json_nargs=0
_shtab_cdigen_generate__v_nargs=0
_shtab_cdigen_generate___verbose_nargs=0
_shtab_cdigen_generate__q_nargs=0
_shtab_cdigen_generate___quiet_nargs=0
_shtab_cdigen_health__h_nargs=0
_shtab_cdigen_health___help_nargs=0
_shtab_cdigen_health___json_nargs=0
_shtab_cdigen_health__v_nargs=0
_shtab_cdigen_health___verbose_nargs=0
_shtab_cdigen_health__q_nargs=0
_shtab_cdigen_health___quiet_nargs=0
_shtab_cdigen_inspect__h_nargs=0
_shtab_cdigen_inspect___help_nargs=0
_shtab_cdigen_inspect___figures_nargs=0
_shtab_cdigen_inspect___strict_nargs=0
_shtab_cdigen_inspect___json_nargs=0
_shtab_cdigen_inspect__v_nargs=0
_shtab_cdigen_inspect___verbose_nargs=0
_shtab_cdigen_inspect__q_nargs=0
_shtab_cdigen_inspect___quiet_nargs=0
_shtab_cdigen_install_service__h_nargs=0
_shtab_cdigen_install_service___help_nargs=0
_shtab_cdigen_install_service___remove_nargs=0
_shtab_cdigen_install_service___no_start_nargs=0
_shtab_cdigen_install_service___json_nargs=0
_shtab_cdigen_install_service__v_nargs=0
_shtab_cdigen_install_service___verbose_nargs=0
_shtab_cdigen_install_service__q_nargs=0
_shtab_cdigen_install_service___quiet_nargs=0
_shtab_cdigen_kubelet__h_nargs=0
_shtab_cdigen_kubelet___help_nargs=0
_shtab_cdigen_kubelet___standby_nargs=0
_shtab_cdigen_kubelet___json_nargs=0
_shtab_cdigen_kubelet__v_nargs=0
_shtab_cdigen_kubelet___verbose_nargs=0
_shtab_cdigen_kubelet__q_nargs=0
_shtab_cdigen_kubelet___quiet_nargs=0
_shtab_cdigen_list__h_nargs=0
_shtab_cdigen_list___help_nargs=0
_shtab_cdigen_list___json_nargs=0
_shtab_cdigen_list__v_nargs=0
_shtab_cdigen_list___verbose_nargs=0
_shtab_cdigen_list__q_nargs=0
_shtab_cdigen_list___quiet_nargs=0
_shtab_cdigen_nri__h_nargs=0
_shtab_cdigen_nri___help_nargs=0
_shtab_cdigen_nri___standby_nargs=0
_shtab_cdigen_nri___json_nargs=0
_shtab_cdigen_nri__v_nargs=0
_shtab_cdigen_nri___verbose_nargs=0
_shtab_cdigen_nri__q_nargs=0
_shtab_cdigen_nri___quiet_nargs=0
_shtab_cdigen_prune__h_nargs=0
_shtab_cdigen_prune___help_nargs=0
_shtab_cdigen_prune___dry_run_nargs=0
_shtab_cdigen_prune___json_nargs=0
_shtab_cdigen_prune__v_nargs=0
_shtab_cdigen_prune___verbose_nargs=0
_shtab_cdigen_prune__q_nargs=0
_shtab_cdigen_prune___quiet_nargs=0
_shtab_cdigen_resolve__h_nargs=0
_shtab_cdigen_resolve___help_nargs=0
_shtab_cdigen_resolve___privileged_nargs=0
_shtab_cdigen_resolve___json_nargs=0
_shtab_cdigen_resolve__v_nargs=0
_shtab_cdigen_resolve___verbose_nargs=0
_shtab_cdigen_resolve__q_nargs=0
_shtab_cdigen_resolve___quiet_nargs=0
_shtab_cdigen_run__h_nargs=0
_shtab_cdigen_run___help_nargs=0
_shtab_cdigen_run___standby_nargs=0
_shtab_cdigen_run___strict_nargs=0
_shtab_cdigen_run___json_nargs=0
_shtab_cdigen_run__v_nargs=0
_shtab_cdigen_run___verbose_nargs=0
_shtab_cdigen_run__q_nargs=0
_shtab_cdigen_run___quiet_nargs=0
_shtab_cdigen_status__h_nargs=0
_shtab_cdigen_status___help_nargs=0
_shtab_cdigen_status___json_nargs=0
_shtab_cdigen_status__v_nargs=0
_shtab_cdigen_status___verbose_nargs=0
_shtab_cdigen_status__q_nargs=0
_shtab_cdigen_status___quiet_nargs=0
_shtab_cdigen_topology__h_nargs=0
_shtab_cdigen_topology___help_nargs=0
_shtab_cdigen_topology___strict_nargs=0
_shtab_cdigen_topology___json_nargs=0
_shtab_cdigen_topology__v_nargs=0
_shtab_cdigen_topology___verbose_nargs=0
_shtab_cdigen_topology__q_nargs=0
_shtab_cdigen_topology___quiet_nargs=0
_shtab_cdigen_validate_pos_0_nargs=+
_shtab_cdigen_validate__h_nargs=0
_shtab_cdigen_validate___help_nargs=0
_shtab_cdigen_validate___host_nargs=0
_shtab_cdigen_validate___schema_nargs=0
_shtab_cdigen_validate___json_nargs=0
_shtab_cdigen_validate__v_nargs=0
_shtab_cdigen_validate___verbose_nargs=0
_shtab_cdigen_validate__q_nargs=0
_shtab_cdigen_validate___quiet_nargs=0
_shtab_cdigen_withdraw__h_nargs=0
_shtab_cdigen_withdraw___help_nargs=0
_shtab_cdigen_withdraw___dry_run_nargs=0
_shtab_cdigen_withdraw___with_hook_nargs=0
_shtab_cdigen_withdraw___json_nargs=0
_shtab_cdigen_withdraw__v_nargs=0
_shtab_cdigen_withdraw___verbose_nargs=0
_shtab_cdigen_withdraw__q_nargs=0
_shtab_cdigen_withdraw___quiet_nargs=0
_shtab_cdigen_pos_0_nargs=A...
_shtab_cdigen__h_nargs=0
_shtab_cdigen___help_nargs=0
_shtab_cdigen__V_nargs=0
_shtab_cdigen___version_nargs=0


# Custom Preamble
_cdigen_kinds() {
	compgen -W "$(cdigen list --quiet 2>/dev/null | sed -n 's/^\([A-Za-z0-9._:-]*\/[A-Za-z0-9._:-]*=[A-Za-z0-9._:-]*\)  *\(usable  \|unhealthy: \).*/\1/p' | sed 's/=.*//' | sort -u)" -- "$1"
}
_cdigen_devices() {
	compgen -W "$(cdigen list --quiet 2>/dev/null | sed -n 's/^\([A-Za-z0-9._:-]*\/[A-Za-z0-9._:-]*=[A-Za-z0-9._:-]*\)  *\(usable  \|unhealthy: \).*/\1/p')" -- "$1"
}
_cdigen_users() {
	compgen -u -- "$1"
}
# End Custom Preamble

# $1=COMP_WORDS[1]
_shtab_compgen_files() {
  compgen -f -- $1  # files
}

# $1=COMP_WORDS[1]
_shtab_compgen_dirs() {
  compgen -d -- $1  # recurse into subdirs
}

# $1=COMP_WORDS[1]
_shtab_replace_nonword() {
  echo "${1//[^[:word:]]/_}"
}

# set default values (called for the initial parser & any subparsers)
_set_parser_defaults() {
  local subparsers_var="${prefix}_subparsers[@]"
  sub_parsers=${!subparsers_var-}

  local current_option_strings_var="${prefix}_option_strings[@]"
  current_option_strings=${!current_option_strings_var}

  completed_positional_actions=0

  _set_new_action "pos_$completed_positional_actions" true
}

# $1=action identifier
# $2=positional action (bool)
# set all identifiers for an action's parameters
_set_new_action() {
  current_action="${prefix}_$(_shtab_replace_nonword $1)"

  local current_action_compgen_var=${current_action}_COMPGEN
  current_action_compgen="${!current_action_compgen_var-}"

  local current_action_choices_var="${current_action}_choices[@]"
  current_action_choices="${!current_action_choices_var-}"

  local current_action_nargs_var="${current_action}_nargs"
  if [ -n "${!current_action_nargs_var-}" ]; then
    current_action_nargs="${!current_action_nargs_var}"
  else
    current_action_nargs=1
  fi

  current_action_args_start_index=$(( $word_index + 1 - $pos_only ))

  current_action_is_positional=$2
}

# Notes:
# `COMPREPLY`: what will be rendered after completion is triggered
# `completing_word`: currently typed word to generate completions for
# `${!var}`: evaluates the content of `var` and expand its content as a variable
#     hello="world"
#     x="hello"
#     ${!x} -> ${hello} -> "world"
_shtab_cdigen() {
  local completing_word="${COMP_WORDS[COMP_CWORD]}"
  local previous_word="${COMP_WORDS[COMP_CWORD-1]}"
  local completed_positional_actions
  local current_action
  local current_action_args_start_index
  local current_action_choices
  local current_action_compgen
  local current_action_is_positional
  local current_action_nargs
  local current_option_strings
  local sub_parsers
  COMPREPLY=()

  local prefix=_shtab_cdigen
  local word_index=0
  local pos_only=0 # "--" delimiter not encountered yet
  _set_parser_defaults
  word_index=1

  # determine what arguments are appropriate for the current state
  # of the arg parser
  while [ $word_index -ne $COMP_CWORD ]; do
    local this_word="${COMP_WORDS[$word_index]}"

    if [[ $pos_only = 1 || " $this_word " != " -- " ]]; then
      if [[ -n $sub_parsers && " ${sub_parsers[@]} " == *" $this_word "* ]]; then
        # valid subcommand: add it to the prefix & reset the current action
        prefix="${prefix}_$(_shtab_replace_nonword $this_word)"
        _set_parser_defaults
      fi

      if [[ " ${current_option_strings[@]} " == *" $this_word "* ]]; then
        # a new action should be acquired (due to recognised option string or
        # no more input expected from current action);
        # the next positional action can fill in here
        _set_new_action $this_word false
      fi

      if [[ "$current_action_nargs" != "*" ]] && \
         [[ "$current_action_nargs" != "+" ]] && \
         [[ "$current_action_nargs" != "?" ]] && \
         [[ "$current_action_nargs" != *"..." ]] && \
         (( $word_index + 1 - $current_action_args_start_index - $pos_only >= \
            $current_action_nargs )); then
        $current_action_is_positional && let "completed_positional_actions += 1"
        _set_new_action "pos_$completed_positional_actions" true
      fi
    else
      pos_only=1 # "--" delimiter encountered
    fi

    let "word_index+=1"
  done

  # Generate the completions

  COMPREPLY=()
  if [[ $pos_only = 0 && "$completing_word" == -* &&
        ( -z "$current_action_compgen" || "$current_action_is_positional" = true ) ]]; then
    # optional argument started: use option strings
    while IFS= read -r line; do COMPREPLY+=("$line"); done < <(
      compgen -W "${current_option_strings[*]}" -- "$completing_word")
  elif [[ "$previous_word" =~ ^[0-9\&]*[\<\>]\>?$ ]]; then
    # handle redirection operators
    compopt -o filenames 2>/dev/null || : # bash>=4
    while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen -f -- "$completing_word")
  else
    # use choices & compgen
    local action_compgen_word="$completing_word"
    # handle tab-completing in the middle of a line (#248 <- #116)
    [[ -n "$current_action_compgen" && "$completing_word" == -* ]] && action_compgen_word=""
    [ -n "$current_action_compgen" ] && {
      [[ "$current_action_compgen" =~ _(file|dir|glob|FILE|DIR|GLOB)|File|Dir|Glob ]] &&
        compopt -o filenames 2>/dev/null || : # bash>=4
      while IFS= read -r line; do COMPREPLY+=("$line"); done < <(
        "$current_action_compgen" "$action_compgen_word")
    }
    while IFS= read -r line; do COMPREPLY+=("$line"); done < <(
      compgen -W "${current_action_choices[*]}" -- "$completing_word")
  fi

  if [[ ${#COMPREPLY[@]} = 0 ]]; then
    # native fallback matches are not necessarily filenames (e.g. variables)
    compopt +o filenames 2>/dev/null || : # bash>=4
  fi

  return 0
}

_cdigen() {
	local rest=$COMP_LINE trimmed word breaks prefix
	local -a whole=()
	for word in "${COMP_WORDS[@]:0:COMP_CWORD+1}"; do
		trimmed=${rest#"${rest%%[![:space:]]*}"}
		if [[ $trimmed == "$rest" && ${#whole[@]} -gt 0 ]]; then
			whole[${#whole[@]}-1]+=$word
		else
			whole+=("$word")
		fi
		rest=${trimmed#"$word"}
	done
	local -a COMP_WORDS=()
	for word in "${whole[@]}"; do
		if [[ $word == --*=* ]]; then
			COMP_WORDS+=("${word%%=*}" "${word#*=}")
		else
			COMP_WORDS+=("$word")
		fi
	done
	local COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
	_shtab_cdigen
	word=${COMP_WORDS[COMP_CWORD]}
	breaks=${COMP_WORDBREAKS//[^=:]/}
	[[ -n $breaks && $word == *["$breaks"]* ]] || return 0
	prefix=${word%"${word##*["$breaks"]}"}
	COMPREPLY=("${COMPREPLY[@]#"$prefix"}")
}

complete -o bashdefault -F _cdigen cdigen
