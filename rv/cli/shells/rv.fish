# Completion of rv for fish. `rv completion fish` prints this.

function __rv_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l command $words[1]
    set -e words[1]
    set -l answer ($command __complete fish $words "$current" 2>/dev/null)
    if test (count $answer) -gt 1
        printf '%s\n' $answer[2..-1]
    end
    switch "$answer[1]"
        case files
            __fish_complete_path "$current"
        case folders
            __fish_complete_directories "$current"
    end
end

complete --command rv --no-files --keep-order --arguments '(__rv_complete)'
