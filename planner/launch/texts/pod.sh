set -euo pipefail
%if has_files
# {{folder}} is read-only, and some programs write where they run.
mkdir -p {{work}} && cp -rL {{folder}}/* {{work}}
cd {{work}}
%end
{{environment}}
{{asked}}
%if several_nodes
export NUM_NODES={{num_nodes}} MASTER_PORT={{master_port}}
%end
{{given}}
%if port
export PORT={{port}}
%end
%each links
export {{stem}}_HOST_{{copy}}={{host_word}}
export {{stem}}_URL_{{copy}}=http://{{host}}:{{port}}
%end
{{arguments}}
exec {{command}}
