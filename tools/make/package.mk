# What is installed, and the Debian package of it.

bindir  ?= $(PREFIX)/bin
libdir  ?= $(PREFIX)/lib
incdir  ?= $(PREFIX)/include
mandir  ?= $(PREFIX)/share/man
# The program looks for its models in ../share/prevue from the directory that it is in.
datadir  = $(abspath $(bindir)/../share/prevue)
bashcompdir ?= $(PREFIX)/share/bash-completion/completions
zshcompdir  ?= $(PREFIX)/share/zsh/site-functions
fishcompdir ?= $(PREFIX)/share/fish/vendor_completions.d
INSTALL ?= install

# The manual page and the completions are printed by the program. After a build for another machine
# NATIVE names a program that this one can run.
NATIVE ?= $(BUILD)/prevue
GUIDES  = $(addprefix $(BUILD)/guides/,prevue.1 prevue.bash _prevue prevue.fish)
$(BUILD)/guides/prevue.1:    PRINT = --man
$(BUILD)/guides/prevue.bash: PRINT = --completions bash
$(BUILD)/guides/_prevue:     PRINT = --completions zsh
$(BUILD)/guides/prevue.fish: PRINT = --completions fish
$(GUIDES): $(NATIVE)
	@mkdir -p $(@D)
	$(call say,GEN)$(NATIVE) help $(PRINT) > $@

HEADERS = prevue.h testing.h about.h
# The small models that the program uses when none is named, and clips to try them with.
DATA    = $(addprefix models/nano,.gguf -draft.gguf -head.gguf) models/README.md \
          $(sort $(wildcard samples/*-frames.mp4)) samples/README.md

.PHONY: install uninstall deb check-deb
install: $(BUILD)/prevue $(HELPER) lib $(GUIDES)
	$(INSTALL) -d $(if $(HELPER),$(DESTDIR)$(libexecdir)/prevue) $(DESTDIR)$(bindir) $(DESTDIR)$(libdir)/pkgconfig $(DESTDIR)$(incdir)/prevue
	$(INSTALL) -m 755 $(BUILD)/prevue $(DESTDIR)$(bindir)/prevue
	$(if $(HELPER),$(INSTALL) -m 755 $(HELPER) $(DESTDIR)$(libexecdir)/prevue/prevue-media)
	$(INSTALL) -m 644 $(addprefix include/prevue/,$(HEADERS)) $(DESTDIR)$(incdir)/prevue
	$(INSTALL) -m 755 $(SO) $(DESTDIR)$(libdir)/libprevue.so.$(VERSION)
	ln -sf libprevue.so.$(VERSION) $(DESTDIR)$(libdir)/libprevue.so.$(SOVERSION)
	ln -sf libprevue.so.$(VERSION) $(DESTDIR)$(libdir)/libprevue.so
	sed -e 's|@prefix@|$(PREFIX)|; s|@libdir@|$(libdir)|; s|@incdir@|$(incdir)|' \
	    -e 's|@version@|$(VERSION)|' prevue.pc.in \
	    > $(DESTDIR)$(libdir)/pkgconfig/prevue.pc
	$(INSTALL) -d $(DESTDIR)$(datadir)/models $(DESTDIR)$(datadir)/samples
	for f in $(DATA); do $(INSTALL) -m 644 $$f $(DESTDIR)$(datadir)/$$f || exit 1; done
	$(INSTALL) -d $(addprefix $(DESTDIR),$(mandir)/man1 $(bashcompdir) $(zshcompdir) $(fishcompdir))
	$(INSTALL) -m 644 $(BUILD)/guides/prevue.1 $(DESTDIR)$(mandir)/man1/prevue.1
	$(INSTALL) -m 644 $(BUILD)/guides/prevue.bash $(DESTDIR)$(bashcompdir)/prevue
	$(INSTALL) -m 644 $(BUILD)/guides/_prevue $(DESTDIR)$(zshcompdir)/_prevue
	$(INSTALL) -m 644 $(BUILD)/guides/prevue.fish $(DESTDIR)$(fishcompdir)/prevue.fish

uninstall:
	rm -f $(DESTDIR)$(bindir)/prevue $(DESTDIR)$(libexecdir)/prevue/prevue-media $(DESTDIR)$(libdir)/libprevue.so* \
	    $(DESTDIR)$(libdir)/pkgconfig/prevue.pc $(addprefix $(DESTDIR)$(incdir)/prevue/,$(HEADERS)) \
	    $(addprefix $(DESTDIR),$(mandir)/man1/prevue.1 $(bashcompdir)/prevue $(zshcompdir)/_prevue $(fishcompdir)/prevue.fish) \
	    $(addprefix $(DESTDIR)$(datadir)/,$(DATA))
	-rmdir $(DESTDIR)$(incdir)/prevue $(DESTDIR)$(libexecdir)/prevue $(addprefix $(DESTDIR)$(datadir)/,models samples) $(DESTDIR)$(datadir)

# A Debian package, $(DEB), from what `make install` installs; neither root nor debhelper is needed.
MULTIARCH = $(shell $(CC) -print-multiarch 2>/dev/null)
DEB_STAGE = $(BUILD)/deb
DEB       = $(BUILD)/prevue_$(VERSION)_$(if $(filter aarch64%,$(MACHINE)),arm64,amd64).deb

deb: $(BUILD)/prevue $(HELPER) lib $(GUIDES)
	@rm -rf $(DEB_STAGE)
	@$(MAKE) --no-print-directory -s install PREFIX=/usr DESTDIR='$(abspath $(DEB_STAGE))' libdir=/usr/lib/$(MULTIARCH) \
	    zshcompdir=/usr/share/zsh/vendor-completions
	@tools/deb.sh '$(abspath $(DEB_STAGE))' $(DEB) $(VERSION) '$(MULTIARCH)'

# The package unpacked, run, compiled against and removed, all below a directory of its own.
check-deb:
	@tools/setup.sh deb
	@$(AGAIN) deb
	@BUILD='$(BUILD)' CC='$(CC)' tests/run.sh 'tests/packages/deb.sh $(DEB)'
