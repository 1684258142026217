#!/usr/bin/perl
# Checks that what the documentation names exists.
#
#   check_docs.pl ROOT PREVUE PREVUE-LAB FILE.md...        prints each mistake as file:line: text; exits 1 if there is one
#
# Looked at are links, code spans (`...`) and code blocks:
#   - links to files, and to headings of Markdown files
#   - paths that begin with a folder of the repository; * and <name> stand for anything, {a,b} for either.
#     build/ is not looked at
#   - names of C and CUDA files and of stored measurements without a folder: one file of that name must exist
#   - `prevue COMMAND --option` and the same of prevue-lab: the command and its options, and the value where the help lists all values
#   - `--option` alone: an option of some command, or one that a program or script of the repository reads
#   - `make TARGET VARIABLE=...`: targets and variables of the Makefile and tools/make
use strict;
use warnings;

my ($root, $prevue, $lab, @files) = @ARGV;
my $folders = join '|', map { quotemeta }
    qw(src doc cli lab server bench tests tools models samples examples include helper python .ci);
# Names of files that belong to a user or to another project, and options of other programs.
my %foreign_file = map { $_ => 1 } qw(example.c program.c src/models/qwen3moe.cpp src/models/qwen3vlmoe.cpp);
my %foreign_option = map { $_ => 1 } qw(--pure --help);
my $foreign_program = qr/^(?:llama-|hf |pip |apt-get |mpirun |docker |curl |ffmpeg |cc )/;

my $bad = 0;
my ($file, $line);

sub mistake
{
    print "$file:$line: $_[0]\n";
    $bad = 1;
}

sub slurp
{
    my ($name) = @_;
    open my $in, '<:encoding(UTF-8)', $name or die "$name: $!\n";
    local $/;
    return scalar <$in> // '';
}

# --- what there is ---------------------------------------------------------------------------

my (@all, %base);
{
    my @folders = ($root);
    while (my $folder = pop @folders) {
        opendir my $d, $folder or next;
        for my $name (readdir $d) {
            next if $name eq '.' || $name eq '..';
            my $path = "$folder/$name";
            my $short = substr $path, length($root) + 1;
            next if $short =~ m{^(?:\.git|build|prevue|prevue-lab|prevue-media)$} || $name eq '__pycache__';
            if (-d $path) {
                push @folders, $path;
            } else {
                push @all, $short;
                $base{$name} = 1;
            }
        }
    }
}

# Commands of the programs; of each its options with, where the help lists them, their values.
my (%command, %any_option);
for (['prevue', $prevue], ['prevue-lab', $lab]) {
    my ($name, $program) = @$_;
    my @commands = map { /^  ([a-z]+)  / ? $1 : () } split /\n/, `'$program' help`;
    @commands or die "$program help lists no command\n";
    $command{"$name $_"} = options_of("'$program' help $_", "'$program' $_ --help-all 2>/dev/null") for @commands;
}

sub options_of
{
    my %found;
    my ($value, @names) = ('');
    my $close = sub {
        $value =~ s/\s+/ /g;
        my @also = $value =~ /\bAlso ((?:--?[\w-]+,? ?)+)/ ? split(/[ ,]+/, $1) : ();
        s/\.$// for @also;
        my $values = $value =~ /\bOne of: ([\w .,-]+?)\.(?: |$)/ ? $1 : undef;
        for my $n (@names, @also) {
            $found{$n} = $values;
            $any_option{$n} = 1;
        }
        ($value, @names) = ('');
    };
    for (map { split /\n/, `$_` } @_) {
        if (/^ {2,6}(?:(-\w+), )?(--?[\w-]+)(.*)/) {
            $close->();
            @names = grep { defined } $1, $2;
            $value = $3;
        } elsif (/^\S/) {
            $close->();
        } else {
            $value .= " $_";
        }
    }
    $close->();
    $found{'--help'} = $found{'-h'} = undef;
    return \%found;
}

# Words that programs and scripts of the repository read as options.
my %script_option;
for my $f (grep { m{^(?:bench|tools|tests|examples|cli|lab|server|\.ci|python)/} && !/\.(?:md|gguf|mp4|json)$/ } @all) {
    next if $f =~ m{^tests/(?:golden|data|fuzz/corpus)/};
    my $text = slurp_bytes("$root/$f");
    $script_option{$_} = 1 for $text =~ /(--[a-z][\w-]*)/g;
    $script_option{"--$_"} = 1 for $text =~ /"([a-z][a-z0-9-]+)"/g;
}

sub slurp_bytes
{
    my ($name) = @_;
    open my $in, '<:raw', $name or return '';
    local $/;
    return scalar <$in> // '';
}

my $makefile = join "\n", map { slurp($_) } "$root/Makefile", glob "$root/tools/make/*.mk";
my (%target, %variable);
while ($makefile =~ /^([\w.\/ -]+?)\s*:(?!=)/mg) {
    $target{$_} = 1 for split ' ', $1;
}
$variable{$1} = 1 while $makefile =~ /\$\(([A-Za-z_]\w*)\)/g;
$variable{$1} = 1 while $makefile =~ /^\s*(?:export )?([A-Za-z_]\w*)\s*[:?+]?=/mg;
$variable{$1} = 1 while $makefile =~ /(?:filter 1|ifeq \(|\$\(if )[^\n]*?\$\(([A-Z]\w*)\)/g;

# --- checks ----------------------------------------------------------------------------------

# GitHub's name of a heading.
sub anchor
{
    my ($heading) = @_;
    $heading =~ s/\[([^\]]*)\]\([^)]*\)/$1/g;
    $heading = lc $heading;
    $heading =~ s/[^\w\- ]//g;
    $heading =~ s/ /-/g;
    return $heading;
}

my %anchors;
sub anchors_of
{
    my ($path) = @_;
    return $anchors{$path} //= { map { anchor($_) => 1 } slurp($path) =~ /^#+ +(.*?) *$/mg };
}

sub check_link
{
    my ($target) = @_;
    return if $target =~ m{^(?:https?|mailto):};
    return if $target =~ m{^\.\./\.\./actions/}; # a page of the site that shows the README
    my ($path, $heading) = $target =~ /^([^#]*)(?:#(.*))?$/;
    my ($folder) = $file =~ m{^(.*/)};
    my $full = $path eq '' ? "$root/$file" : "$root/" . ($folder // '') . $path;
    if (!-e $full) {
        mistake("link to $target: there is no such file");
    } elsif (defined $heading && !anchors_of($full)->{$heading}) {
        mistake("link to $target: there is no such heading");
    }
}

# Is there a file for a path with *, <name> and {a,b}?
sub exists_path
{
    my ($path) = @_;
    $path =~ s{/$}{};
    return 1 if -e "$root/$path";
    my $re = join '', map {
        /^\*$/ || /^<.*>$/ ? '[^/]*' : /^\{(.*)\}$/ ? '(?:' . join('|', map { quotemeta } split /,/, $1) . ')' : quotemeta
    } $path =~ /(\*|<[^>]*>|\{[^}]*\}|[^*<{]+|.)/g;
    return scalar grep { m{^$re(?:/.*)?$} } @all;
}

sub check_word
{
    my ($word) = @_;
    $word =~ s/^[("']+//;
    $word =~ s/[)"',;:.]+$// unless $word =~ /\.\.\.$/;
    $word =~ s{^\./}{};
    return if $foreign_file{$word};
    if ($word =~ m{^(?:$folders)/[\w./*<>{},+-]*$} && $word !~ m{//|\.\.}) {
        # models/MODEL.gguf is any file.
        mistake("there is no $word") unless exists_path($word) || $word =~ m{/[A-Z]+\.\w+$};
    } elsif ($word =~ /^[a-z0-9][\w-]*\.(?:c|h|cu|cuh)$/ || $word =~ /^h200[\w-]*\.txt$/) {
        mistake("there is no file $word") unless $base{$word};
    }
}

# A shell command line without what follows a pipe or a semicolon.
sub check_prevue
{
    my ($command, $rest) = @_;
    my $known = $command{$command};
    if (!$known) {
        mistake("there is no command $command");
        return;
    }
    $rest =~ s/'[^']*'|"[^"]*"|\$\([^)]*\)/TEXT/g;
    $rest =~ s/(?:^|\s)(?:#|&&|;|\||>).*//s;
    my @words = grep { length } split /[\s\[\]]+/, $rest;
    for my $i (0 .. $#words) {
        my ($option, $value) = $words[$i] =~ /^(--?[a-zA-Z][\w-]*)(?:=(.*))?$/ or next;
        if (!exists $known->{$option}) {
            mistake("$command has no option $option");
            next;
        }
        my $values = $known->{$option} or next;
        $value //= $words[$i + 1] // '';
        next unless $value =~ /^[a-z][a-z0-9_-]*$/;
        mistake("$command $option takes one of: $values; not $value")
            unless grep { $_ eq $value } split /[ ,]+/, $values;
    }
}

sub check_make
{
    my ($rest) = @_;
    $rest =~ s/'[^']*'|"[^"]*"/TEXT/g;
    $rest =~ s/(?:^|\s)(?:#|&&|;|\||>).*//s;
    for my $word (split ' ', $rest) {
        next if $word =~ /^-|^\$|^[A-Z]+$|^\.\.\.$/;
        $word =~ s/[.,:;)]+$//;
        if ($word =~ /^([A-Za-z_]\w*)=/) {
            mistake("the Makefile has no variable $1") unless $variable{$1};
        } elsif ($word =~ m{^build/(?:[\w]+/)*([\w-]+)$}) {
            mistake("make $word: there is no $1.c") unless $1 =~ /^prevue/ || $base{"$1.c"};
        } elsif ($word =~ /^[a-z][\w-]*$/) {
            mistake("the Makefile has no target $word") unless $target{$word};
        } else {
            last;
        }
    }
}

# A code span or a line of a code block.
sub check_code
{
    my ($code, $is_span) = @_;
    check_word($_) for split /[\s=]+/, $code;
    return if $code =~ $foreign_program;
    while ($code =~ m{(?:^|[\s(\$])(?:\./|build/(?:\w+/)*)?(prevue(?:-lab)?)\s+([a-z]+)(?=\s|$)([^`]*)}g) {
        check_prevue("$1 $2", $3);
    }
    if ($code =~ m{^(?:\$ |[A-Z_]+=\S+ |sudo )*make((?:\s.*)?)$}s) {
        check_make($1);
    }
    if ($is_span && $code =~ /^(--[a-z][\w-]*)/) {
        my $option = $1;
        my @options = $code =~ /(?:^|[\s,])(--[a-z][\w-]*)/g;
        for (@options) {
            mistake("there is no option $_")
                unless $any_option{$_} || $script_option{$_} || $foreign_option{$_} || /-$/;
        }
    }
}

sub check_file
{
    my $text = slurp("$root/$file");
    my ($fence, $pending, $begin) = (0, '', 0);
    $line = 0;
    my @lines = split /\n/, $text;
    my $prose = '';
    for (@lines, '') {
        $line++;
        if (/^\s*```/) {
            $fence = !$fence;
            next;
        }
        if ($fence || $pending ne "" || (/^ {4}/ && /\S/ && $prose eq "")) {
            my $code = $pending . $_;
            if ($code =~ s/\\$/ /) {
                $pending = $code;
                next;
            }
            $pending = '';
            check_code($code, 0);
            next;
        }
        # Prose, paragraph by paragraph: a span may be broken over two lines.
        if (/\S/ && !/^\|/) {
            $begin = $line if $prose eq '';
            $prose .= "$_\n";
            next if $line < @lines;
        }
        my $here = $line;
        check_prose($prose, $begin) if $prose ne '';
        $prose = '';
        $line = $here;
        check_prose("$_\n", $here) if /^\|/;
    }
}

sub check_prose
{
    my ($prose, $begin) = @_;
    while ($prose =~ /`([^`]+)`|\]\(([^()\s]+)\)/g) {
        my ($span, $link) = ($1, $2);
        $line = $begin + (substr($prose, 0, $-[0]) =~ tr/\n//);
        if (defined $link) {
            check_link($link);
        } else {
            $span =~ s/\s+/ /g;
            check_code($span, 1);
        }
    }
}

for my $name (@files) {
    $file = $name;
    check_file();
}
exit $bad;
