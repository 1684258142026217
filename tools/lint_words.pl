#!/usr/bin/perl
# The part of `make lint` that reads prose: Markdown lines of more than 120 columns, and phrases that
# readers had to guess at. Reads the files named on the command line, prints violations as file:line:
# text, exits 1 when there is one.
#
# Rows of tables may be longer than 120 columns: Markdown has no way to break one. So may a line with
# an address that is itself too long. Add a phrase to the list when a reader stumbles over it; say
# what to write instead.
use strict;
use warnings;

my $columns = 120;
my @phrases = (
    [qr/as large as pays?\b/i, 'say what decides the size: "chooses the size from measured costs"'],
    [qr/side by side lets|lets? \w+ \w+ work side by side/i, 'say "in parallel"'],
    [qr/where no librar(?:y|ies) (?:is|are)\b/i, 'name the build: "in builds without FFmpeg"'],
    [qr/(?:that|which) waits? for memory/i, 'say "limited by memory bandwidth" or "memory-bound"'],
    [qr/\bapart by commas/i, 'say "comma-separated"'],
    [qr/is not one that there is/i, 'say "unknown ..."'],
    [qr/there is no \w+ '%s': .* there are\b/i, q{say "unknown device '...' (use ...)"}],
    [qr/, \.\.\. there are\b/i, 'say "(use ... or ...)"'],
    [qr/\bfailed of counts|its silence ended/i, 'say who failed and what is reported'],
    [qr/\bperhaps some more\b/i, 'say "may be called again"'],
    [qr/of the others only those/i, 'say what is ignored'],
    [qr/costs? what the (?:queries|rows) are/i, 'say what is computed and what is not'],
    [qr/\bvideos? of yours\b|take a model of the hub/i, 'say "your own videos", "download a model"'],
    [qr/rightly and wrongly/i, 'say that it makes mistakes'],
    [qr/\bcloser; drag: along/i, 'say "Scroll to zoom, drag to pan, double-click to reset."'],
    [qr/\bless of the same\b/i, 'say what changed'],
    [qr/\bunless told\b/i, 'say "by default"'],
    [qr/\bin the box\b/i, 'say "built-in" or "in the repository"'],
    [qr/\bfiles? of strangers|text of strangers/i, 'say "untrusted"'],
    [qr/\bdrafters? with eyes\b/i, 'say "drafters that see the video"'],
    [qr/\bbehind walls\b/i, 'say "in a sandbox"'],
    [qr/\bever new shapes\b/i, 'say "shapes that keep changing"'],
    [qr/\bnobody has run (?:it|that)\b/i, 'say "not tested"'],
    # Names that strangers could not guess.
    [qr/\bcrew(?:_\w+)?\b/, 'call it a group, or say what its members do'],
    [qr/\bsight_\w+\b/, 'call it frame_policy or view_args'],
    [qr/\btelling_\w+\b/, 'call it emitted or answer_output'],
);
my $bad = 0;

for my $file (@ARGV) {
    next if $file eq 'tools/lint_words.pl';
    next unless $file =~ /\.(?:c|h|cu|cuh|cpp|sh|pl|py|js|css|html|md|yaml|conf|cfg|mk)$|Makefile$/;
    open my $in, '<:encoding(UTF-8)', $file or die "$file: $!\n";
    my ($line, $before) = (0, '');
    while (my $text = <$in>) {
        $line++;
        chomp $text;
        my $n = length $text;
        if ($file =~ /\.md$/ && $n > $columns && $text !~ /^\|/ && $text !~ m{\bhttps?://\S{60,}}) {
            print "$file:$line: $n columns, more than $columns\n";
            $bad = 1;
        }
        # A phrase may be broken over two lines: look at the end of the one before, too.
        my $rest = $text;
        $rest =~ s{^\s*(?:/?\*+|//|#+)?\s*}{};
        my $both = "$before $rest";
        for my $p (@phrases) {
            my ($pattern, $instead) = @$p;
            next unless $both =~ $pattern && $before !~ $pattern;
            print "$file:$line: \"$&\": $instead\n";
            $bad = 1;
        }
        $before = $rest;
    }
    close $in;
}
exit $bad;
