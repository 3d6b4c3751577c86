//===- CompletionCommand.cpp - tbc completion ----------------------------------===//

#include "tools/tbc-run/WordFlags.h"
#include "tools/tbc/Command.h"

#include <CLI/CLI.hpp>

#include <iostream>
#include <memory>

namespace tbc::cli {

// The scripts ask `tbc complete WORD ..` for candidates, so that they never lag behind --help. A
// line ":files" asks for the names of files.

static const char bashScript[] = R"sh(# source <(tbc completion bash)
_tbc() {
  local line=${COMP_LINE:0:COMP_POINT} word=${COMP_WORDS[COMP_CWORD]} full candidate
  local -a words
  # Bash splits at '=' and ':' too; tbc wants the words between spaces.
  read -r -a words <<< "$line"
  [[ $line == *[[:space:]] ]] && words+=("")
  full=${words[${#words[@]}-1]}
  [[ $word == [=:] ]] && word=
  local skip=$((${#full} - ${#word}))
  COMPREPLY=()
  while IFS= read -r candidate; do
    if [[ $candidate == :files ]]; then
      compopt -o filenames
      while IFS= read -r candidate; do COMPREPLY+=("$candidate"); done < <(compgen -f -- "$word")
    else
      [[ $candidate == *= ]] && compopt -o nospace
      COMPREPLY+=("${candidate:skip}")
    fi
  done < <("${words[0]}" complete "${words[@]:1}" 2> /dev/null)
}
complete -F _tbc tbc
)sh";

static const char zshScript[] = R"sh(#compdef tbc
# source <(tbc completion zsh), after compinit
_tbc() {
  local candidate
  local -a found
  for candidate in "${(@f)$("${words[1]}" complete "${(@)words[2,CURRENT]}" 2> /dev/null)}"; do
    if [[ $candidate == :files ]]; then
      _files
    elif [[ $candidate == *= ]]; then
      compadd -S '' -- "$candidate"
    elif [[ -n $candidate ]]; then
      found+=("$candidate")
    fi
  done
  compadd -a found
}
compdef _tbc tbc
)sh";

static const char fishScript[] = R"sh(# tbc completion fish | source
function __tbc_complete
    set -l line (commandline -opc)
    for candidate in ($line[1] complete $line[2..-1] (commandline -ct) 2> /dev/null)
        if test "$candidate" = :files
            __fish_complete_path (commandline -ct)
        else
            echo $candidate
        end
    end
end
complete -c tbc -f -a '(__tbc_complete)'
)sh";

void addCompletionCommand(CLI::App &app, const SetAction &setAction) {
  CLI::App *command =
      app.add_subcommand("completion", "Print the script by which a shell completes tbc's words");
  auto shell = std::make_shared<std::string>();
  command->add_option("shell", *shell, "The shell")
      ->required()
      ->transform(oneOf({"bash", "zsh", "fish"}));
  command->callback([shell, setAction] {
    setAction([shell]() -> Result<int> {
      std::cout << (*shell == "bash" ? bashScript : *shell == "zsh" ? zshScript : fishScript);
      return 0;
    });
  });
}

} // namespace tbc::cli
